"""The words at the end of a run."""

import pytest

from nat.cli.commands.finetune_summary import _held_out_rows
from nat.finetuning.verdict import compare


@pytest.mark.parametrize(
    ("scale", "shown"),
    [(1.0, "20.0% → 100.0% on the same 10 examples"), (40.0, "8.000 → 40.000 on the same 10 examples")],
)
def test_scores_between_0_and_1_are_percentages(scale, shown):
    """A win rate reads as one, and a score on another scale is not multiplied by a hundred."""
    before = {str(i): scale * (i < 2) for i in range(10)}
    after = {str(i): scale for i in range(10)}
    assert ("Held-out", shown) in _held_out_rows(compare(before, after))
