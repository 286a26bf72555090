"""Sampling on the plain path: each sequence alone, with a cache of transformers' own or none."""

from random import Random

import pytest
import torch

from fakes.families import make_tiny_family
from fakes.listeners import Recorder, one, run
from nat.backend.attention import packed_logits
from nat.backend.inference.detokenizer import Detokenizer
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.plain import PlainSlots
from nat.backend.inference.scheduler import Chunk
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.model_loader import load_model
from nat.backend.path_checks import load_checked_model
from nat.backend.tree_attention import PackedTree

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


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_are_scored_and_tokens_streamed(hybrids, family):
    """A scored prompt has the log probabilities of a whole pass, in whatever chunks; each token is reported."""
    loaded, prompt = hybrids[family], prompts(23)[0]
    params, text = SamplingParams(3, prompt_logprobs=1, ignore_eos=True), Detokenizer(loaded.tokenizer, ())
    request = Request([Sequence(0, prompt, params, text)], Recorder(), stream=True)
    subject = engine(loaded, max_step_tokens=9)
    subject._scheduler.max_scored_tokens = 5
    (sequence,) = run(subject, request)
    expected = plain_logprobs(loaded, prompt)[range(22), prompt[1:]]
    found = torch.tensor([each[0].logprob for each in sequence.prompt_scores])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert [token for delta in request.listener.deltas for token in delta.token_ids] == sequence.token_ids


def test_a_model_that_could_be_packed_samples_the_same_tokens_on_the_plain_path(tiny_dir):
    """Tokens depend on seeds and weights, not on the path."""
    packed = load_model(tiny_dir("qwen2"))
    plain = load_checked_model(tiny_dir("qwen2"), device="cpu", plain_because="of this test")
    asked = [{"max_tokens": 8, "seed": seed, "temperature": 1.2} for seed in range(3)]
    first, second = (
        [s.token_ids for s in run(engine(each), *(one(prompts(30)[0], **params) for params in asked))]
        for each in (packed, plain)
    )
    assert first == second
    with torch.no_grad():
        rows = PackedTree([[1, 2, 3], [1, 2], [4]])
        torch.testing.assert_close(
            packed_logits(plain.model, rows), packed_logits(packed.model, rows), atol=1e-5, rtol=0
        )


def test_a_step_computes_only_what_the_cache_lacks(hybrids):
    """One token where the cache ends before it; all from the first one on, where it ends elsewhere or cannot go on."""
    seen = []

    class Seen(torch.nn.Module):
        def forward(self, input_ids, use_cache, past_key_values=None):
            seen.append((input_ids.shape[1], past_key_values))
            return hybrids["qwen3_5_text"].model.model(input_ids=input_ids, use_cache=use_cache)

    def computed(continues, *chunks):
        seen.clear()
        slots = PlainSlots(continues)
        for chunk in chunks:
            assert slots.compute(Seen(), chunk, torch.device("cpu")).shape[0] == len(chunk.token_ids)
        return [(size, cache is not None) for size, cache in seen]

    chunks = [Chunk(0, 0, [5, 6, 7]), Chunk(0, 3, [8, 9]), Chunk(0, 5, [1]), Chunk(0, 5, [2])]
    assert computed("chunks", *chunks) == [(3, False), (2, True), (1, True), (6, False)]
    assert computed("tokens", *chunks) == [(3, False), (5, False), (1, True), (6, False)]
    assert computed("nothing", *chunks) == [(3, False), (5, False), (6, False), (6, False)]
