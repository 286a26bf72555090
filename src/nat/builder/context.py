"""Where running code is: its builder, its rollout, its function and its open spans.

All four are one value in one context variable: every task and thread of a rollout sees it, and no other rollout does.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from nat.data_models.intermediate_step import (
    REWARD,
    REWARDED_STEP,
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepState,
    IntermediateStepType,
    StreamEventData,
)
from nat.data_models.invocation_node import ROOT_COMPONENT_NAME, InvocationNode
from nat.data_models.score import score_problem
from nat.secrets import excerpt

ROOT = InvocationNode(function_id=ROOT_COMPONENT_NAME, function_name=ROOT_COMPONENT_NAME)

OnNext = Callable[[IntermediateStep], None]
OnError = Callable[[Exception], None]
OnComplete = Callable[[], None]


class RuntimeTypeEnum(StrEnum):
    """The purpose of a workflow run."""

    RUN_OR_SERVE = "run_or_serve"
    EVALUATE = "evaluate"
    OTHER = "other"


class Place(NamedTuple):
    """Where running code is; each task has its own."""

    builder: Any = None
    """The `WorkflowBuilder` that is open."""
    rollout: "Context | None" = None
    function: InvocationNode = ROOT
    """The active function."""
    spans: tuple[str, ...] = (ROOT_COMPONENT_NAME,)
    """UUIDs of the open spans, the innermost last."""


_OUTSIDE = Place()
_place: ContextVar[Place] = ContextVar("nat_place", default=_OUTSIDE)


def here() -> Place:
    """Where this code is."""
    return _place.get()


def move(**changes: Any) -> Token[Place]:
    """Change fields of this task's place."""
    return _place.set(_place.get()._replace(**changes))


class Subscription(NamedTuple):
    """Ends with `unsubscribe`, which may be called twice."""

    unsubscribe: Callable[[], None]


class IntermediateStepManager:
    """The stream of steps of one rollout; nothing is copied.

    Adds parent span and function to each payload; one manager serves all contexts of a rollout.
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, InvocationNode]] = {}
        self._subscribers: list[tuple[OnNext, OnError | None, OnComplete | None]] = []

    def push_intermediate_step(self, payload: IntermediateStepPayload) -> None:
        """Publish an event; an END has the parent and function of its START, or the current ones if there is none."""
        if not isinstance(payload, IntermediateStepPayload):
            raise TypeError(
                f"expected an IntermediateStepPayload, got {type(payload).__name__}: {excerpt(repr(payload), 80)}"
            )
        uuid, spans = payload.UUID, here().spans
        parent, function = self._open.get(uuid) or (spans[-1], here().function)
        if payload.event_state is IntermediateStepState.START:
            self._open[uuid] = parent, function
            move(spans=(*spans, uuid))
        elif payload.event_state is IntermediateStepState.END:
            self._open.pop(uuid, None)
            if uuid in spans:
                move(spans=spans[: spans.index(uuid)])
        self.publish(IntermediateStep(parent_id=parent, function_ancestry=function, payload=payload))

    def publish(self, step: IntermediateStep) -> None:
        """Publish a step that has a parent and a function already, such as one of a remote workflow."""
        for on_next, _, _ in tuple(self._subscribers):
            on_next(step)

    def subscribe(
        self, on_next: OnNext, on_error: OnError | None = None, on_complete: OnComplete | None = None
    ) -> Subscription:
        """Call `on_next` for each later step, and `on_complete` or `on_error` once at the end."""
        entry = (on_next, on_error, on_complete)
        self._subscribers.append(entry)

        def unsubscribe() -> None:
            self._subscribers[:] = [each for each in self._subscribers if each is not entry]

        return Subscription(unsubscribe)

    def complete(self, error: Exception | None = None) -> None:
        """End the stream for all subscribers, and remove them."""
        subscribers, self._subscribers[:] = tuple(self._subscribers), []
        for _, on_error, on_complete in subscribers:
            if error is not None and on_error is not None:
                on_error(error)
            elif error is None and on_complete is not None:
                on_complete()

    def get_outstanding_step_count(self) -> int:
        """The number of open spans."""
        return len(self._open)


@dataclass
class ActiveFunctionHandle:
    """Receives the output in the body of `push_active_function`."""

    output: Any = None

    def set_output(self, output: Any) -> None:
        self.output = output


@dataclass(frozen=True)
class Context:
    """One rollout, and its stream of steps."""

    input_message: Any = None
    """The input of the workflow."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Values from the caller of the workflow."""
    runtime_type: RuntimeTypeEnum = RuntimeTypeEnum.OTHER
    workflow_run_id: str | None = None
    conversation_id: str | None = None
    user_id: str | None = None
    rollout_seed: int | None = None
    """A seed for the workflow's own randomness, always the same for the same rollout; None if the rollout has none."""
    intermediate_step_manager: IntermediateStepManager = field(default_factory=IntermediateStepManager)

    @classmethod
    def get(cls) -> "Context":
        """The current rollout; outside of rollouts, one that belongs to the current task."""
        if (rollout := here().rollout) is None:
            rollout = cls()
            move(rollout=rollout)
        return rollout

    @contextlib.contextmanager
    def active(self) -> Iterator["Context"]:
        """Make this the current rollout until the block ends, with an empty stack of functions and spans."""
        token = move(rollout=self, function=ROOT, spans=_OUTSIDE.spans)
        try:
            yield self
        finally:
            _place.reset(token)

    @property
    def is_evaluating(self) -> bool:
        return self.runtime_type is RuntimeTypeEnum.EVALUATE

    @property
    def active_function(self) -> InvocationNode:
        return here().function

    @property
    def active_span_id(self) -> str:
        return here().spans[-1]

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
        caller = here().function
        node = InvocationNode(
            function_id=str(uuid.uuid4()),
            function_name=function_name,
            parent_id=caller.function_id,
            parent_name=caller.function_name,
        )
        push = self.intermediate_step_manager.push_intermediate_step
        handle = ActiveFunctionHandle()
        token = move(function=node)
        event = {"UUID": node.function_id, "name": function_name, "metadata": metadata}
        try:
            start = StreamEventData(input=input_data)
            push(IntermediateStepPayload(event_type=IntermediateStepType.FUNCTION_START, data=start, **event))
            yield handle
        finally:
            end = StreamEventData(input=input_data, output=handle.output)
            push(IntermediateStepPayload(event_type=IntermediateStepType.FUNCTION_END, data=end, **event))
            with contextlib.suppress(ValueError):  # an async generator may be closed from another context
                _place.reset(token)


ContextState = Context
"""The toolkit has the state apart from the view of it."""


@contextlib.contextmanager
def own_steps() -> Iterator[list[IntermediateStep]]:
    """Keep the steps that are pushed inside the block, which belongs to no rollout."""
    found: list[IntermediateStep] = []
    rollout = Context()
    rollout.intermediate_step_manager.subscribe(found.append)
    with rollout.active():
        yield found
