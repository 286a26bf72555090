"""Listeners that record the engine's events, and a function that runs requests without a server."""

import threading

from nat.backend.inference.engine import Engine
from nat.backend.inference.sequence import Delta, Request, SamplingParams, Sequence


class Recorder:
    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.finished = 0
        self.error: BaseException | None = None

    def on_deltas(self, deltas: list[Delta]) -> None:
        self.deltas.extend(deltas)

    def on_finished(self) -> None:
        self.finished += 1

    def on_failed(self, error: BaseException) -> None:
        self.error = error


class Waiter(Recorder):
    """A listener that another thread can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.done = threading.Event()

    def on_deltas(self, deltas: list[Delta]) -> None:
        super().on_deltas(deltas)
        self.started.set()

    def on_finished(self) -> None:
        super().on_finished()
        self.done.set()

    def on_failed(self, error: BaseException) -> None:
        super().on_failed(error)
        self.done.set()


def one(prompt: list[int], **params: object) -> Request:
    """A request of one sequence without a listener."""
    return Request([Sequence(0, prompt, SamplingParams(**params))], Recorder())


def run(engine: Engine, *requests: Request) -> list[Sequence]:
    """Step the engine until the requests finish."""
    for request in requests:
        engine.add(request)
    while engine.has_work:
        engine.step()
    return [sequence for request in requests for sequence in request.sequences]
