"""The stream of intermediate steps of one rollout.

Every LLM call pushes steps: a step refers to its payload and is passed to each subscriber; nothing is copied.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace

from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepPayload, IntermediateStepState
from nat.data_models.invocation_node import InvocationNode
from nat.secrets import excerpt

OnNext = Callable[[IntermediateStep], None]
OnError = Callable[[Exception], None]
OnComplete = Callable[[], None]


@dataclass(frozen=True, slots=True)
class StepScope:
    """Where running code pushes its steps; each task has its own."""

    function: InvocationNode
    """The active function."""
    spans: tuple[str, ...]
    """UUIDs of the open spans, the innermost last."""


@dataclass(frozen=True)
class Subscription:
    """Ends with `unsubscribe`, which may be called twice."""

    _subscribers: "list[tuple[OnNext, OnError | None, OnComplete | None]]"
    _entry: tuple[OnNext, OnError | None, OnComplete | None]

    def unsubscribe(self) -> None:
        self._subscribers[:] = [s for s in self._subscribers if s is not self._entry]


class IntermediateStepManager:
    """Adds parent span and function to each payload; one manager serves all contexts of a rollout."""

    def __init__(self, scope: ContextVar[StepScope]) -> None:
        self._scope = scope
        self._open: dict[str, tuple[str, InvocationNode]] = {}
        self._subscribers: list[tuple[OnNext, OnError | None, OnComplete | None]] = []

    def push_intermediate_step(self, payload: IntermediateStepPayload) -> None:
        """Publish an event; an END has the parent and function of its START, or the current ones if there is none."""
        if not isinstance(payload, IntermediateStepPayload):
            raise TypeError(
                f"expected an IntermediateStepPayload, got {type(payload).__name__}: {excerpt(repr(payload), 80)}"
            )
        uuid, state = payload.UUID, payload.event_state
        scope = self._scope.get()
        spans = scope.spans
        place = self._open.get(uuid) or (spans[-1], scope.function)
        if state is IntermediateStepState.START:
            self._open[uuid] = place
            self._scope.set(replace(scope, spans=(*spans, uuid)))
        elif state is IntermediateStepState.END:
            self._open.pop(uuid, None)
            if uuid in spans:
                self._scope.set(replace(scope, spans=spans[: spans.index(uuid)]))
        self.publish(IntermediateStep(parent_id=place[0], function_ancestry=place[1], payload=payload))

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
        return Subscription(self._subscribers, entry)

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
