"""The words at the end of a run."""

from pathlib import Path

from nat.cli.commands.finetune_summary import served_command, summary_text
from nat.data_models.finetuning import ServedModel
from nat.data_models.rollout_failure import FailureCount
from nat.finetuning.runtime import RunResult
from nat.finetuning.verdict import Comparison, compare
from nat.runs.records import RunSummary

SUMMARY = RunSummary(run_id="r", epochs=1, seconds=61.0, tokens_trained=59792)


def shown(comparison: Comparison | None = None, **fields) -> str:
    summary = SUMMARY.model_copy(update=fields)
    return summary_text(RunResult("r", Path("runs/r"), [], summary, comparison, None, None), Path("c.yml"))


def test_the_verdict_comes_first_and_each_of_its_numbers_once():
    """Before, after, difference and interval in one sentence, in one unit."""
    before, after = ({str(i): float(i < wins) for i in range(10)} for wins in (2, 9))
    comparison = compare(before, after)
    text = shown(comparison)
    assert text.startswith(f"\n{comparison.sentence}\n")
    assert [text.count(number) for number in ("0.200", "0.900", "+0.700")] == [1, 1, 1]
    assert "20.0%" not in text


def test_a_run_without_held_out_examples_says_that_there_is_no_verdict():
    """Silence would read as success."""
    assert "No verdict: there was no validation dataset." in shown()


def test_what_to_try_stands_below_the_verdict_if_something_is_known():
    """It is what a reader of a run without improvement looks for."""
    assert "Next" not in shown()
    assert "\n\nNext     Train longer.\nTrained  1 epoch" in shown(next_step="Train longer.")


def test_what_was_trained_is_a_sentence():
    """Epochs, time and tokens, the numbers as people write them."""
    assert "1 epoch in 1 min 1 s, on 59,792 tokens that the model wrote" in shown()


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
    assert "Split chats" not in shown()
    text = shown(broken_by={"template_rewrites": 5, "answer_edited": 2})
    assert "7 calls did not go on with the tokens of their answers (template_rewrites 5, answer_edited 2)" in text


def test_what_rows_shared_is_shown_if_the_backend_tells():
    """As the factor by which fewer tokens were computed, and the ceiling of that."""
    assert "Prefix sharing" not in shown()
    text = shown(row_tokens=3000, packed_tokens=1200, unique_tokens=1000)
    assert (
        "Prefix sharing  2.50\N{MULTIPLICATION SIGN} fewer tokens computed (3.00\N{MULTIPLICATION SIGN} possible)"
        in text
    )


def test_failures_are_counted_by_cause_with_an_error_a_remedy_and_the_tracebacks():
    """A run may end well although a third of its rollouts failed."""
    assert "Failed" not in shown()
    failures = [
        FailureCount(cause="the workflow raised an error", count=64, error="KeyError: 'city'"),
        FailureCount(cause="the evaluator gave no score", count=2, error="the score is nan, not a finite number"),
    ]
    text = shown(rollouts=1920, failures=failures, failures_file="failures.txt")
    assert "66 of 1,920 rollouts" in text
    assert "64 x the workflow raised an error: KeyError: 'city'" in text
    assert "2 x the evaluator gave no score: the score is nan" in text
    assert "→ Fix the workflow" in text
    assert "Tracebacks  runs/r/failures.txt" in text
