"""The words at the end of a run."""

from pathlib import Path

import pytest

from nat.cli.commands.finetune_summary import _held_out_rows, served_command, summary_text
from nat.data_models.served_model import ServedModel
from nat.finetuning.runtime import RunResult
from nat.finetuning.verdict import compare
from nat.runs.records import RunSummary


@pytest.mark.parametrize(
    ("scale", "shown"),
    [(1.0, "20.0% → 100.0% on the same 10 examples"), (40.0, "8.000 → 40.000 on the same 10 examples")],
)
def test_scores_between_0_and_1_are_percentages(scale, shown):
    """A win rate reads as one, and a score on another scale is not multiplied by a hundred."""
    before = {str(i): scale * (i < 2) for i in range(10)}
    after = {str(i): scale for i in range(10)}
    assert ("Held-out", shown) in _held_out_rows(compare(before, after))


def test_a_model_that_its_server_keeps_comes_with_the_options_that_use_it():
    """Without them the YAML would go on asking for the base model."""
    served = ServedModel(
        name="my_run@20", base_url="http://localhost:8000/v1", overrides=(("llms.a.model_name", "my_run"),)
    )
    assert str(served) == "my_run@20 at http://localhost:8000/v1"
    expected = "nat run --config_file=finetune.yml -o llms.a.model_name my_run --input '…'"
    assert served_command(served, Path("finetune.yml")) == expected


def test_broken_prefixes_are_shown_by_cause_if_there_are_any():
    """A run whose rows are all whole says nothing of them."""
    summary = RunSummary(run_id="r", epochs=1, seconds=1.0, tokens_trained=9)
    broken = summary.model_copy(update={"broken_by": {"template_rewrites": 5, "answer_edited": 2}})
    whole, shown = (
        summary_text(RunResult("r", Path("runs/r"), [], s, None, None, None), Path("c.yml")) for s in (summary, broken)
    )
    assert "New rows" not in whole
    assert "7 calls did not go on with the tokens of their answers (template_rewrites 5, answer_edited 2)" in shown


def test_what_rows_shared_is_shown_if_the_backend_tells():
    """As the number of row tokens for each one that was computed, and the ceiling of that."""
    summary = RunSummary(run_id="r", epochs=1, seconds=1.0, tokens_trained=9)
    told = summary.model_copy(update={"row_tokens": 3000, "packed_tokens": 1200, "unique_tokens": 1000})
    silent, shown = (
        summary_text(RunResult("r", Path("runs/r"), [], s, None, None, None), Path("c.yml")) for s in (summary, told)
    )
    assert "Shared" not in silent
    assert "3,000 tokens in rows, 2.50 for each that was computed (at most 3.00)" in shown
