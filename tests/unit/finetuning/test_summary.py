from pathlib import Path

from fakes.run_records import epoch_record, job_record, validation_record
from nat.data_models.finetuning import BudgetConfig
from nat.data_models.llm_usage import LLMUsage, PriceConfig
from nat.data_models.rollout_failure import FailureCount
from nat.finetuning.summary import broken_prefixes, compared, path_in_run, phase_verdicts, summarise
from nat.runs.records import TrainingPhase, Verdict

BEFORE = {str(i): 0.0 for i in range(10)}
AFTER = {str(i): 1.0 for i in range(10)}


def test_the_first_and_the_last_validation_are_compared():
    """Validations in between do not count."""
    validations = [validation_record(0, BEFORE), validation_record(5, BEFORE), validation_record(8, AFTER)]
    found = compared(validations, 8)
    assert found is not None
    assert (found.before, found.after, found.verdict) == (0.0, 1.0, Verdict.IMPROVED)


def test_without_two_validations_there_is_no_comparison():
    """A run without a validation dataset, or without an epoch, gets no verdict."""
    assert compared([], 8) is None
    assert compared([validation_record(0, BEFORE)], 8) is None
    assert compared([validation_record(0, BEFORE)], 0) is None


def test_the_summary_adds_up_the_trained_tokens():
    """Failed jobs have no trained tokens."""
    jobs = [job_record("a", tokens_trained=100), job_record("b", tokens_trained=50)]
    record = summarise("r", None, jobs, played=[], validations=[], epochs=2, seconds=9.0, model="model")
    assert (record.tokens_trained, record.epochs, record.verdict, record.plot) == (150, 2, None, None)


def test_the_summary_adds_up_shared_tokens():
    """A backend that does not report sharing adds nothing."""
    told = {"row_tokens": 30.0, "packed_tokens": 12.0, "unique_tokens": 10.0}
    jobs = [job_record("a", metrics=told), job_record("b", metrics=told), job_record("c")]
    record = summarise("r", None, jobs, played=[], validations=[], epochs=2, seconds=9.0, model="model")
    assert (record.row_tokens, record.packed_tokens, record.unique_tokens) == (60, 24, 20)


def test_the_summary_has_the_cost_of_epochs_and_validations():
    """Without prices it has none, which is not zero."""
    used = {"rollout": {"gpt": LLMUsage(calls=3)}}
    epochs, held_out = [epoch_record(0, usage=used)], validation_record(0).model_copy(update={"usage": used})
    given = {"played": epochs, "validations": [held_out], "epochs": 1, "seconds": 9.0, "model": None}
    budget = BudgetConfig(prices={"gpt": PriceConfig(call=0.5)})
    assert summarise("r", None, [], **given, budget=budget).cost == 3.0
    assert summarise("r", None, [], **given).cost is None


def test_broken_prefixes_are_added_up_by_cause():
    """Causes are summed over all epochs, the most frequent first; other metrics are not included."""
    epochs = [
        epoch_record(0, metrics={"drift/broken_prefixes": 3, "drift/broken_by_answer_edited": 3.0}),
        epoch_record(1, metrics={"drift/broken_by_answer_edited": 1.0, "drift/broken_by_template_rewrites": 5.0}),
    ]
    assert list(broken_prefixes(epochs).items()) == [("template_rewrites", 5), ("answer_edited", 4)]


def test_the_summary_adds_up_failures():
    """Failures are counted by cause with the first error; each rollout of training and validation counts."""
    raised = FailureCount(cause="the workflow raised an error", count=3, error="KeyError: 'city'")
    unscored = FailureCount(cause="the evaluator gave no score", count=1, error=None)
    epochs = [
        epoch_record(0, num_rollouts=10, failures=[raised]),
        epoch_record(1, num_rollouts=10, failures=[unscored, raised]),
    ]
    held_out = validation_record(0).model_copy(update={"failures": [unscored], "num_rollouts": 2})
    record = summarise("r", None, [], played=epochs, validations=[held_out], epochs=2, seconds=9.0, model=None)
    assert [(each.count, each.error) for each in record.failures] == [(6, "KeyError: 'city'"), (2, None)]
    assert (record.rollouts, record.failures_file) == (22, "failures.txt")


def test_paths_inside_the_run_folder_are_relative():
    """A model inside the run's folder has a relative path; another one has its full path."""
    assert path_in_run(Path("/runs/r/model"), Path("/runs/r")) == "model"
    assert path_in_run(Path("/elsewhere/model"), Path("/runs/r")) == "/elsewhere/model"
    assert path_in_run(None, Path("/runs/r")) is None


def test_a_phase_that_cannot_be_judged_says_why():
    """Held-out examples of which none was scored both times give the reason in place of a verdict."""
    phase = TrainingPhase(name="play", first_epoch=0, num_epochs=1)
    validations = [validation_record(0, {"x": 1.0, "y": None}), validation_record(1, {"x": None, "y": 1.0})]
    (verdict,) = phase_verdicts([phase], validations, 1)
    assert verdict.sentence is not None
    assert "held-out" in verdict.sentence
