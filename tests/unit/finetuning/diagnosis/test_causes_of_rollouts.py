import pytest

from nat.finetuning.diagnosis.evidence import Evidence
from nat.finetuning.diagnosis.find import diagnosis_of
from nat.finetuning.rollout_statistics import ScoreSpread
from nat.runs.rollouts import LeftOutCause

BY_OUTPUT = ScoreSpread(compared=800, squares=200.0, repeats=400, repeat_squares=0.0)
BY_CHANCE = ScoreSpread(compared=800, squares=200.0, repeats=400, repeat_squares=100.0)
"""Equal rollouts differ as much as others."""


def causes(**changes) -> dict[str, str]:
    """What is found in a run with these numbers, by cause."""
    evidence = Evidence(num_epochs=4, num_rollouts=400, lowest=0.0, highest=1.0, generations=8.0, **changes)
    return {finding.cause: finding.seen for finding in diagnosis_of(evidence).findings}


def test_healthy_rollouts_have_no_cause():
    """Without unusual numbers nothing is found."""
    assert causes(spread=BY_OUTPUT, row_spread=BY_OUTPUT, trained_tokens=1.0) == {}


@pytest.mark.parametrize(
    ("name", "bad", "fine"),
    [
        ("rollouts_failed", {"left_out": {LeftOutCause.FAILED: 0.2}}, {"left_out": {LeftOutCause.FAILED: 0.05}}),
        ("rollouts_failed", {"left_out": {LeftOutCause.NO_SCORE: 0.2}}, {}),
        ("calls_lost", {"left_out": {LeftOutCause.NO_LOGPROBS: 0.3}}, {"left_out": {LeftOutCause.NO_LOGPROBS: 0.02}}),
        ("calls_lost", {"without_calls": 0.3}, {"without_calls": 0.01}),
        ("calls_lost", {"without_logprobs": 0.3}, {"without_logprobs": 0.01}),
        ("wrong_target", {"left_out": {LeftOutCause.NO_TARGET_FUNCTION: 0.3}}, {}),
        ("wrong_target", {"left_out": {LeftOutCause.NO_TARGET_MODEL: 0.3}}, {}),
        ("sampling_changed", {"left_out": {LeftOutCause.UNTRAINABLE_SAMPLING: 0.3}}, {}),
        ("sampling_changed", {"untrainable_calls": 0.3}, {"untrainable_calls": 0.03}),
        ("sampling_changed", {"untempered_calls": 0.3}, {"untempered_calls": 0.03}),
        ("stale_rollouts", {"left_out": {LeftOutCause.TOO_STALE: 0.6}}, {"left_out": {LeftOutCause.TOO_STALE: 0.4}}),
        ("truncation", {"truncated": 0.3, "truncated_lowest": 0.95}, {"truncated": 0.1, "truncated_lowest": 1.0}),
        ("truncation", {"truncated": 1.0, "truncated_lowest": 1.0}, {"truncated": 1.0, "truncated_lowest": 0.5}),
        ("no_variety", {"equal_outputs": 0.6}, {"equal_outputs": 0.4}),
    ],
)
def test_each_number_has_a_healthy_range(name, bad, fine):
    """Beyond the range the cause comes first; within it, nothing is found."""
    assert next(iter(causes(**bad))) == name
    assert causes(**fine) == {}


def test_rollouts_without_any_call_are_lost_and_not_of_another_target():
    """They have no call of the target because no call was seen at all."""
    left_out = {LeftOutCause.NO_TARGET_FUNCTION: 0.75}
    assert [*causes(left_out=left_out, without_calls=0.75)] == ["calls_lost"]


def test_the_trained_tokens_must_decide_the_score():
    """If equal rows differ in score as much as others, other calls decide it: seen ones of other functions, or lost."""
    decided_elsewhere = {"spread": BY_OUTPUT, "row_spread": BY_CHANCE}
    assert [*causes(**decided_elsewhere, trained_tokens=0.5)] == ["wrong_target"]
    assert [*causes(**decided_elsewhere, trained_tokens=1.0)] == ["calls_lost"]
    assert [*causes(spread=BY_CHANCE, row_spread=BY_CHANCE, trained_tokens=0.5)] == ["independent_score"]


def test_a_target_that_was_not_seen_is_shown_beside_what_was_seen():
    """The two names show a spelling mistake."""
    functions = {"target_functions": ["plannr"], "functions": {"planner": 8}}
    text = causes(left_out={LeftOutCause.NO_TARGET_FUNCTION: 1.0}, **functions)["wrong_target"]
    assert "target_functions: plannr; calls of an epoch: planner (8)" in text


def test_a_target_model_that_was_not_called_is_shown_beside_those_that_were():
    """The finding is about the model, not about functions, and names the closest one."""
    models = {"target_model": "studnet", "models": {"student": 8, "tiny": 8}}
    text = causes(left_out={LeftOutCause.NO_TARGET_MODEL: 1.0}, **models)["wrong_target"]
    assert "target_model: studnet; calls of an epoch went to: student (8), tiny (8). Did you mean 'student'?" in text
    assert "target_functions" not in text


def test_cut_off_answers_come_before_scores_that_never_differ():
    """Where every answer is cut off, every score is 0, and the examples look too hard; where few are, the score is."""
    scored = {"lowest": 0.0, "highest": 0.0, "equal_groups": 1.0, "hard": 1.0, "generations": 8.0}
    for truncated, expected in [(1.0, "truncation"), (0.3, "too_hard")]:
        evidence = Evidence(num_epochs=3, num_rollouts=384, truncated=truncated, truncated_lowest=1.0, **scored)
        assert diagnosis_of(evidence).findings[0].cause == expected
