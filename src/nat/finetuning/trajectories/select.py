"""Choose the LLM calls that are trained on: those of the target functions, to the target model, with logprobs.

And of these, those that were drawn from softmax(logits / temperature): `nat.wire.sampling` has the rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nat.finetuning.trajectories.calls import SeenCall
from nat.runs.left_out import LeftOutCause

WHOLE_WORKFLOW = "<workflow>"
"""As a target function: every call of the rollout, whichever function made it."""


@dataclass(frozen=True)
class Selection:
    """The calls that can be trained on, or why there is none."""

    calls: tuple[SeenCall, ...] = ()
    without_logprobs: int = 0
    """Calls to the target that were left out because the server sent no logprobs."""
    untrainable: tuple[SeenCall, ...] = ()
    """Calls to the target that were left out because of how they were sampled."""
    cause: LeftOutCause | None = None

    @property
    def of_target(self) -> tuple[SeenCall, ...]:
        """Calls to the target whose answers are known token by token, trained on or not."""
        return (*self.calls, *self.untrainable)


def select(seen: Sequence[SeenCall], *, target_functions: Sequence[str], target_model: str | None) -> Selection:
    """Keep the target's calls; `target_model` is an LLM's key in the YAML or a name of the model, asked for or sent."""
    of_function = [s for s in seen if WHOLE_WORKFLOW in target_functions or s.function in target_functions]
    if not of_function:
        return Selection(cause=LeftOutCause.NO_TARGET_FUNCTION)
    of_model = [s for s in of_function if target_model in (None, s.call.llm_name, s.call.model, s.call.asked_model)]
    if not of_model:
        return Selection(cause=LeftOutCause.NO_TARGET_MODEL)
    untrainable = tuple(s for s in of_model if s.call.untrainable_by)
    drawn = [s for s in of_model if not s.call.untrainable_by]
    usable = tuple(s for s in drawn if s.call.logprobs is not None)
    if not usable:
        cause = LeftOutCause.NO_LOGPROBS if drawn else LeftOutCause.UNTRAINABLE_SAMPLING
        return Selection(without_logprobs=len(drawn), untrainable=untrainable, cause=cause)
    return Selection(calls=usable, without_logprobs=len(drawn) - len(usable), untrainable=untrainable)
