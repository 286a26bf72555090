"""Sampling with `deterministic`: what a token's numbers depend on."""

from random import Random

import pytest
import torch

from fakes.families import make_tiny_family
from fakes.listeners import one, run
from fakes.tiny_fixtures import load_again
from fakes.tiny_model import CONFIGS
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.lora import LoraSettings


def requests(seed, count=8):
    """Requests of which some begin alike, with several temperatures; a function of the seed."""
    random = Random(seed)
    begins = [[random.randrange(250) for _ in range(length)] for length in (3, 40, 150)]
    made = []
    for number in range(count):
        own = [random.randrange(250) for _ in range(random.choice([1, 2, 7, 30, 90]))]
        params = {"temperature": random.choice([0.0, 0.7, 1.0]), "top_p": random.choice([0.8, 1.0]), "top_logprobs": 2}
        prompt = random.choice([*begins, []]) + own
        made.append(lambda p=prompt, n=number, q=params: one(p, max_tokens=3 + 5 * (n % 4), seed=n, **q))
    return made


def answers(loaded, made, order, **limits):
    """What each request is answered, by its number."""
    own = [made[number]() for number in order]
    run(Engine(loaded, policy_version="m@0", limits=EngineLimits(**limits)), *own)
    found = [each.sequences[0] for each in own]
    return {n: (s.token_ids, s.logprobs, s.top_logprobs) for n, s in zip(order, found, strict=True)}


def trained_adapter(loaded):
    """The same model, as if its adapter had been trained."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in loaded.trainable_parameters().values():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.1)
    return loaded


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rank", [None, 4])
@pytest.mark.parametrize("kind", CONFIGS)
def test_an_answer_has_the_same_bits_whatever_runs_beside_it(tiny_dir, kind, dtype, rank):
    """Alone, together, in another order, in parts of another length or out of a full cache: an answer is the same."""
    lora = None if rank is None else LoraSettings(rank)
    loaded = load_again(tiny_dir(kind), device="cpu", dtype=dtype, lora=lora, deterministic=True)
    if rank is not None:
        loaded = trained_adapter(loaded)
    check_repeated(loaded, requests(kind))


def test_experts_have_the_same_bits_for_any_number_of_tokens(tmp_path):
    """Which tokens an expert gets follows from what runs at once; what it computes for one does not."""
    make_tiny_family(tmp_path, "qwen3_moe", max_position_embeddings=512)
    check_repeated(load_again(tmp_path, device="cpu", deterministic=True), requests("experts"))


def check_repeated(loaded, made):
    """Compare the answers to each request alone with those to all at once, in several ways."""
    alone: dict = {}
    for number in range(len(made)):
        alone |= answers(loaded, made, [number])
    order = list(range(len(made)))
    for limits in (
        {"max_num_seqs": 32},
        {"max_num_seqs": 5, "max_step_tokens": 11},
        {"max_num_seqs": 7, "prefix_cache_bytes": 0, "kv_cache_bytes": 400 * loaded.token_bytes},
    ):
        assert answers(loaded, made, order, **limits) == alone
        Random(str(limits)).shuffle(order)
