"""Why rollouts are not trained on. Pure."""

from enum import StrEnum

from nat.data_models import rollout_failure


class LeftOutCause(StrEnum):
    """Why a rollout was not trained on; the value is the words shown to the user."""

    FAILED = rollout_failure.RAISED
    TIMED_OUT = rollout_failure.TIMED_OUT
    NO_SCORE = rollout_failure.NO_SCORE
    SCORED_TOO_LATE = rollout_failure.SCORED_TOO_LATE
    NO_TARGET_FUNCTION = "no LLM call came from a target function"
    NO_TARGET_MODEL = "no LLM call went to the target model"
    NO_LOGPROBS = "the server sent no logprobs"
    UNTRAINABLE_SAMPLING = "its answers were not drawn from the model's own distribution"
    NO_REWARD_DIFFERENCE = "its group has no difference in reward"
    OUTSIDE_CURRICULUM = "the curriculum left its group out"

    @property
    def failure(self) -> bool:
        """True if the workflow or the evaluator failed, so that `max_failure_rate` counts the rollout."""
        return self in _FAILURES

    @property
    def by_choice(self) -> bool:
        """True if the rollout could have been trained on, and the trainer chose others."""
        return self in (LeftOutCause.NO_REWARD_DIFFERENCE, LeftOutCause.OUTSIDE_CURRICULUM)


_FAILURES = frozenset(
    {LeftOutCause.FAILED, LeftOutCause.TIMED_OUT, LeftOutCause.NO_SCORE, LeftOutCause.SCORED_TOO_LATE}
)
