import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nat.backend.inference.randomness import derive_seed, uniforms


def test_numbers_are_uniform_over_seeds_and_over_positions():
    """Kolmogorov-Smirnov against the uniform distribution, along each axis (critical value for 1 %)."""
    count = 20000
    ramp, zeros = np.arange(count, dtype=np.uint64), np.zeros(count, dtype=np.uint64)
    for numbers in (uniforms(ramp, zeros), uniforms(zeros, ramp)):
        distance = np.abs(np.sort(numbers) - (np.arange(count) + 0.5) / count).max()
        assert distance < 1.63 / count**0.5


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 10**6)), min_size=1))
def test_a_number_depends_on_its_own_pair_only(pairs):
    """The batch around a sequence cannot change its number; all numbers lie in [0, 1)."""
    seeds, positions = (np.array(column, dtype=np.uint64) for column in zip(*pairs, strict=True))
    together = uniforms(seeds, positions)
    alone = [uniforms(seeds[i : i + 1], positions[i : i + 1])[0] for i in range(len(pairs))]
    assert together.tolist() == alone
    assert (together >= 0).all()
    assert (together < 1).all()


def test_choices_of_a_request_have_different_seeds():
    """`n` choices with one seed differ, and any Python integer is a seed."""
    assert len({derive_seed(seed, i) for seed in (0, 1, -1, 2**70 + 5) for i in range(4)}) == 16
