import pytest

from nat.data_models.rollout_failure import CALLS_FAILED, NO_SCORE, RAISED, SCORED_TOO_LATE, TIMED_OUT
from nat.eval.failures import remedy_of


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        (NO_SCORE, "Fix the evaluator"),
        (f"{NO_SCORE} (exact)", "Fix the evaluator"),
        (RAISED, "Fix the workflow"),
        (TIMED_OUT, "item_timeout"),
        (f"{SCORED_TOO_LATE} (exact)", "scoring_timeout"),
        (CALLS_FAILED, "let the agent raise the errors of its calls"),
    ],
)
def test_each_cause_has_its_own_remedy(cause, remedy):
    """Which may name the evaluator."""
    assert remedy in remedy_of(cause)
