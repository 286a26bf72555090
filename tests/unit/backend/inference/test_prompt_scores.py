"""Scores of prompts: exact in any chunks, beside requests that sample, and after an interruption."""

import pytest
import torch

from fakes.listeners import one, run
from fakes.tiny_fixtures import mostly_slow
from fakes.tiny_model import CONFIGS
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.sampler import scores
from nat.backend.model_loader import load_model


def prompts(*lengths, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 250, (n,), generator=generator).tolist() for n in lengths]


def engine(loaded, *, scored=None, **limits):
    """An engine whose steps score at most so many tokens."""
    made = Engine(loaded, policy_version="m@0", limits=EngineLimits(**limits))
    if scored is not None:
        made._scheduler.max_scored_tokens = scored
    return made


@torch.no_grad()
def assert_exact(loaded, sequence):
    """The scores are those of one forward pass over the whole prompt."""
    ids = sequence.prompt_ids
    logprobs = packed_logits(loaded.model, PackedRows.of([ids])).log_softmax(-1)[:-1]
    assert len(sequence.prompt_scores) == len(ids) - 1
    for entry, target, row in zip(sequence.prompt_scores, ids[1:], logprobs, strict=True):
        assert entry[0].token_id == target
        for each in entry:
            assert each.logprob == pytest.approx(float(row[each.token_id]), abs=1e-4)
        best = row.topk(len(entry)).indices.tolist()
        assert {each.token_id for each in entry[1:]} >= set(best[:-1]) - {target}
        assert [each.rank for each in entry[1:]] == sorted(each.rank for each in entry[1:])


@pytest.mark.parametrize("kind", mostly_slow(CONFIGS, "qwen2", "gemma3"))
@pytest.mark.parametrize(
    "limits",
    [{}, {"scored": 5}, {"max_step_tokens": 7, "short_tokens": 4}, {"scored": 3, "short_tokens": 1, "max_num_seqs": 2}],
)
def test_scores_are_those_of_one_forward_pass(tiny_dir, kind, limits):
    """Log probabilities and alternatives equal a whole forward pass to 1e-4, for any chunks, nodes and slots."""
    loaded = load_model(tiny_dir(kind))
    begin = prompts(20)[0]
    asked = [one([*begin, *rest], max_tokens=2, prompt_logprobs=n % 3) for n, rest in enumerate(prompts(3, 40, 1, 9))]
    for sequence in run(engine(loaded, **limits), *asked):
        assert_exact(loaded, sequence)


def test_ranks_count_the_likelier_tokens():
    """The most likely token has rank 1; a token is listed once, with its own rank, among the most likely ones."""
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
    ((own, *others),) = scores(logits, [2], 2)
    assert (own.token_id, own.rank) == (2, 3)
    assert [(each.token_id, each.rank) for each in others] == [(1, 1), (3, 2)]
    ((own, *others),) = scores(logits, [1], 2)
    assert (own.token_id, own.rank, [each.token_id for each in others]) == (1, 1, [3])
