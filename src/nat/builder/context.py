"""The context of a running workflow.

The state of a rollout is one object in a context variable: every task and thread of the rollout sees it, and no other
rollout does.
"""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from nat.builder.intermediate_step_manager import IntermediateStepManager, StepScope
from nat.data_models.intermediate_step import (
    REWARD,
    REWARDED_STEP,
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    StreamEventData,
)
from nat.data_models.invocation_node import ROOT_COMPONENT_NAME, InvocationNode
from nat.data_models.runtime_enum import RuntimeTypeEnum
from nat.data_models.score import score_problem

__all__ = ["Context", "ContextState", "RuntimeTypeEnum"]

ROOT = InvocationNode(function_id=ROOT_COMPONENT_NAME, function_name=ROOT_COMPONENT_NAME)

_AT_ROOT = StepScope(ROOT, (ROOT_COMPONENT_NAME,))
_scope: ContextVar[StepScope] = ContextVar("nat_step_scope", default=_AT_ROOT)


@dataclass(frozen=True)
class ContextState:
    """The state of one rollout, and its stream of steps."""

    input_message: Any = None
    """The input of the workflow."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Values from the caller of the workflow."""
    runtime_type: RuntimeTypeEnum = RuntimeTypeEnum.OTHER
    workflow_run_id: str | None = None
    conversation_id: str | None = None
    user_id: str | None = None
    rollout_seed: int | None = None
    """A seed for the workflow's own randomness; None if the rollout has none."""
    intermediate_step_manager: IntermediateStepManager = field(default_factory=lambda: IntermediateStepManager(_scope))

    @classmethod
    def get(cls) -> "ContextState":
        """The state of the current rollout; outside of rollouts, a state of the current context."""
        state = _state.get()
        if state is None:
            state = cls()
            _state.set(state)
        return state

    @contextlib.contextmanager
    def active(self) -> Iterator["Context"]:
        """Make this the current rollout until the block ends, with an empty stack of functions and spans."""
        outer, scope = _state.set(self), _scope.set(_AT_ROOT)
        try:
            yield Context(self)
        finally:
            _state.reset(outer)
            _scope.reset(scope)


_state: ContextVar[ContextState | None] = ContextVar("nat_context_state", default=None)


@dataclass
class ActiveFunctionHandle:
    """Receives the output in the body of `push_active_function`."""

    output: Any = None

    def set_output(self, output: Any) -> None:
        self.output = output


@contextlib.contextmanager
def own_steps() -> Iterator[list[IntermediateStep]]:
    """Keep the steps that are pushed inside the block, which belongs to no rollout."""
    found: list[IntermediateStep] = []
    with ContextState().active() as context:
        subscription = context.intermediate_step_manager.subscribe(found.append)
        try:
            yield found
        finally:
            subscription.unsubscribe()


class Context:
    """A view of the current rollout; `Context.get()` is cheap."""

    def __init__(self, state: ContextState) -> None:
        self._state = state

    @staticmethod
    def get() -> "Context":
        return Context(ContextState.get())

    @property
    def input_message(self) -> Any:
        return self._state.input_message

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._state.metadata

    @property
    def intermediate_step_manager(self) -> IntermediateStepManager:
        return self._state.intermediate_step_manager

    @property
    def workflow_run_id(self) -> str | None:
        return self._state.workflow_run_id

    @property
    def conversation_id(self) -> str | None:
        return self._state.conversation_id

    @property
    def user_id(self) -> str | None:
        return self._state.user_id

    @property
    def rollout_seed(self) -> int | None:
        """A seed for the workflow's own randomness; the same rollout always gets the same seed."""
        return self._state.rollout_seed

    @property
    def is_evaluating(self) -> bool:
        return self._state.runtime_type is RuntimeTypeEnum.EVALUATE

    @property
    def active_function(self) -> InvocationNode:
        return _scope.get().function

    @property
    def active_span_id(self) -> str:
        return _scope.get().spans[-1]

    def reward(self, value: float, *, step: str | None = None, name: str = "reward") -> None:
        """Reward the last answer of the model; used with `finetuning.reward_function.credit`.

        Without `step`, the answer is the last one in the active function and in the functions that it called. With
        `step`, the UUID of another step, it is the last one before the end of that step.

        Raises:
            ValueError: the value is not a number, or too large to be averaged.

        """
        if problem := score_problem(value, "the reward of a step"):
            raise ValueError(problem)
        metadata = {REWARD: float(value)} | ({} if step is None else {REWARDED_STEP: step})
        payload = IntermediateStepPayload(event_type=IntermediateStepType.CUSTOM_END, name=name, metadata=metadata)
        self.intermediate_step_manager.push_intermediate_step(payload)

    @contextlib.contextmanager
    def push_active_function(
        self, function_name: str, input_data: Any, metadata: dict[str, Any] | None = None
    ) -> Iterator[ActiveFunctionHandle]:
        """Run the block as the function `function_name`: its steps get this ancestry, between START and END."""
        caller = _scope.get().function
        node = InvocationNode(
            function_id=str(uuid.uuid4()),
            function_name=function_name,
            parent_id=caller.function_id,
            parent_name=caller.function_name,
        )
        push = self.intermediate_step_manager.push_intermediate_step
        handle = ActiveFunctionHandle()
        token = _scope.set(replace(_scope.get(), function=node))
        event = {"UUID": node.function_id, "name": function_name, "metadata": metadata}
        try:
            start = StreamEventData(input=input_data)
            push(IntermediateStepPayload(event_type=IntermediateStepType.FUNCTION_START, data=start, **event))
            yield handle
        finally:
            end = StreamEventData(input=input_data, output=handle.output)
            push(IntermediateStepPayload(event_type=IntermediateStepType.FUNCTION_END, data=end, **event))
            with contextlib.suppress(ValueError):  # an async generator may be closed from another context
                _scope.reset(token)
