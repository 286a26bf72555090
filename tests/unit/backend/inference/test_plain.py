"""Sampling on the plain path: each sequence alone, with a cache of transformers' own or none."""

from random import Random

import pytest
import torch

from fakes.families import make_tiny_family
from fakes.listeners import Recorder, one
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.path_checks import load_checked_model

FAMILIES = {"qwen3_5_text": "chunks", "jamba": "tokens", "recurrent_gemma": "nothing"}
"""What the cache of each continues."""


@pytest.fixture(scope="module")
def hybrids(tmp_path_factory):
    """A tiny model of each kind, loaded once."""
    folders = {family: tmp_path_factory.mktemp(family) for family in FAMILIES}
    return {
        family: load_checked_model(make_tiny_family(folder, family, max_position_embeddings=200), device="cpu")
        for family, folder in folders.items()
    }


def prompts(*lengths):
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, 250, (n,), generator=generator).tolist() for n in lengths]


def engine(loaded, **limits):
    return Engine(loaded, policy_version="m@0", limits=EngineLimits(**limits))


@torch.no_grad()
def plain_logprobs(loaded, ids):
    """Log probabilities of transformers' own forward pass over a row, of every token after each token."""
    return loaded.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)


@pytest.mark.parametrize(("family", "continues"), FAMILIES.items())
def test_chats_that_join_end_and_are_interrupted_are_sampled_as_transformers_computes_them(hybrids, family, continues):
    """Several generations, chunks of prompts, slots that move, cancelled and interrupted requests."""
    loaded, random = hybrids[family], Random(2)
    assert loaded.plain.continues == continues
    room = 80 * loaded.token_bytes + 3 * loaded.plain.state_bytes
    subject = engine(loaded, max_num_seqs=4, max_step_tokens=20, kv_cache_bytes=room)
    requests, interrupted = [one(text, max_tokens=30, ignore_eos=True) for text in prompts(20, 20)], []
    for request in requests:
        subject.add(request)
    for number in range(6):
        text = prompts(40)[0][: random.randrange(1, 40)]
        params = SamplingParams(random.randrange(2, 12), seed=random.randrange(9), ignore_eos=True)
        requests.append(Request([Sequence(i, text, params) for i in range(1 + number % 3)], Recorder()))
        subject.add(requests[-1])
        for _ in range(random.randrange(5)):
            subject.step()
        if number == 2:
            subject.cancel(subject.requests[-1])
    while subject.has_work:
        interrupted += [s for r in requests for s in r.sequences if s.token_ids and not s.num_cached]
        subject.step()
    done = [s for request in requests if request.finished for s in request.sequences]
    assert interrupted
    assert len(done) > 9
    for sequence in done:
        expected = plain_logprobs(loaded, sequence.prompt_ids + sequence.token_ids)[len(sequence.prompt_ids) - 1 : -1]
        found = torch.tensor(sequence.logprobs)
        torch.testing.assert_close(found, expected[range(len(found)), sequence.token_ids], atol=1e-4, rtol=0)
