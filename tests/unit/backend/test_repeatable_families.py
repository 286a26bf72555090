"""`deterministic` for all families that it takes; `make processors` plays them with the kernels of other processors."""

from random import Random

import pytest

from fakes.families import KNOWN, PLAIN, make_tiny_family
from fakes.listeners import one
from nat.backend.path_checks import load_checked_model
from unit.backend.inference.test_engine_deterministic import answers

pytestmark = pytest.mark.processors
REQUESTS = 6


def requests(family):
    """Short prompts of which some begin alike; a function of the family."""
    random = Random(family)
    begins = [[random.randrange(250) for _ in range(length)] for length in (3, 20)]
    made = []
    for number in range(REQUESTS):
        own = [random.randrange(250) for _ in range(random.choice([1, 2, 7, 20]))]
        prompt = random.choice([*begins, []]) + own
        made.append(lambda p=prompt, n=number: one(p, max_tokens=3 + 3 * (n % 4), seed=n, temperature=0.7))
    return made


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", [family for family in KNOWN if family not in PLAIN])
def test_it_passes_the_proof_and_keeps_the_promise(tmp_path, family, dtype):
    """Each answer has the same bits alone and beside others, in prompts that are computed whole or in parts."""
    make_tiny_family(tmp_path, family)
    loaded, made = load_checked_model(tmp_path, device="cpu", dtype=dtype, deterministic=True), requests(family)
    alone: dict = {}
    for number in range(REQUESTS):
        alone |= answers(loaded, made, [number])
    for limits in ({"max_num_seqs": 32}, {"max_num_seqs": 4, "max_step_tokens": 7}):
        assert answers(loaded, made, list(range(REQUESTS)), **limits) == alone, limits
