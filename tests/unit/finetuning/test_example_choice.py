from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nat.finetuning.example_choice import by_spread, in_turn, observed

IDS = [f"e{n}" for n in range(40)]
EQUAL, MIXED = (1.0,) * 8, (0.0, 1.0) * 4


def drawn(known, times):
    """How often each example is chosen for the first epoch, over many seeds."""
    chosen = Counter()
    for seed in range(times):
        chosen.update(by_spread(IDS, 8, known, seed=seed, epoch=1, without=()))
    return chosen


@given(size=st.integers(1, 12), count=st.integers(1, 15), epoch=st.integers(0, 9), seed=st.integers(0, 3))
def test_an_epoch_has_different_examples(size, count, epoch, seed):
    """As many as asked for, or the whole dataset if it is smaller; the same for the same seed."""
    chosen = in_turn(IDS[:size], count, begin=epoch * count, seed=seed)
    assert len(chosen) == len(set(chosen)) == min(size, count)
    assert chosen == in_turn(IDS[:size], count, begin=epoch * count, seed=seed)


def test_consecutive_epochs_pass_through_the_dataset():
    """Five epochs of eight play each of forty examples once; the next pass has another order."""
    passes = [[e for epoch in range(5) for e in in_turn(IDS, 8, begin=40 * n + 8 * epoch, seed=0)] for n in (0, 1)]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(IDS)
    assert passes[0] != passes[1]


def test_examples_whose_rewards_differ_are_preferred():
    """Half of the examples are solved; most of the draws are of the others, yet each solved one is seen again."""
    known = observed({}, {e: EQUAL if n % 2 else MIXED for n, e in enumerate(IDS)}, epoch=0)
    counts = drawn(known, 200)
    solved = sum(counts[e] for e in IDS[1::2])
    assert 0 < solved < counts.total() / 3
    assert all(counts[e] for e in IDS)


def test_examples_that_were_played_are_not_drawn_again():
    """A refill of the epoch has other examples; with none left it is empty."""
    first = by_spread(IDS, 30, {}, seed=0, epoch=2, without=())
    assert not set(by_spread(IDS, 30, {}, seed=0, epoch=2, without=first)) & set(first)
    assert by_spread(IDS, 5, {}, seed=0, epoch=2, without=IDS) == []
