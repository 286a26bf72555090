"""The bounded queue of one exporter, which a thread of its own empties.

Whoever adds spans never waits and never sees an error: what does not fit or cannot be sent is lost and counted. The
log says so once when it begins, and gives the number at the end.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from nat.data_models.telemetry_exporter import BatchConfig
from nat.errors import ANY_FAILURE, describe_error
from nat.telemetry.span import Exporter, Span

logger = logging.getLogger(__name__)

Make = Callable[[], list[Span]]
"""Makes spans; called in the thread, so that it costs the run nothing."""
_RETRIES_S = (1.0, 2.0)
"""Pauses before a batch is sent again; without them while the exporter is known to fail."""


class SpanQueue:
    """Sends spans to one exporter until it is closed."""

    def __init__(self, name: str, exporter: Exporter, config: BatchConfig) -> None:
        """`name` is the exporter's key in the YAML."""
        self._place = f"general.telemetry.tracing.{name}"
        self._exporter = exporter
        self._config = config
        self._queue: list[tuple[int, Make]] = []
        self._waiting = self._sent = self._lost = 0
        self._failing = False
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._place, daemon=True)
        self._thread.start()

    def add(self, count: int, make: Make) -> None:
        """Queue `count` spans; they are lost if the queue is full already."""
        with self._changed:
            if self._waiting >= self._config.max_queue_size or self._closing.is_set():
                self._lose(count, f"{self._waiting} are waiting, of at most {self._config.max_queue_size}")
                return
            self._queue.append((count, make))
            self._waiting += count
            if self._waiting >= self._config.batch_size:
                self._changed.notify()

    def close(self) -> None:
        """Send what is waiting, for `shutdown_timeout` seconds at most; log how many spans were lost."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        self._thread.join(self._config.shutdown_timeout)
        with self._changed:
            if self._waiting:
                self._lose(self._waiting, f"not sent within {self._config.shutdown_timeout:g} s after the end")
            if self._lost:
                logger.warning("%s: %d of %d spans were lost", self._place, self._lost, self._lost + self._sent)

    def _run(self) -> None:
        last = False
        while not last:
            with self._changed:
                self._changed.wait_for(self._is_due, self._config.flush_interval)
                taken, self._queue = self._queue, []
                last = self._closing.is_set()  # nothing is added after it
            self._send_all(taken)
        self._exporter.close()

    def _is_due(self) -> bool:
        return self._closing.is_set() or self._waiting >= self._config.batch_size

    def _send_all(self, taken: Sequence[tuple[int, Make]]) -> None:
        size, spans = self._config.batch_size, list[Span]()
        for count, make in taken:
            try:
                spans += make()
            except ANY_FAILURE as error:  # steps of plug-ins have any shape
                self._settle(count, lost=count, why=describe_error(error))
            while len(spans) >= size:
                self._send(spans[:size])
                del spans[:size]
        if spans:
            self._send(spans)

    def _send(self, spans: list[Span]) -> None:
        refused, why = self._attempt(spans)
        for pause in () if self._failing else _RETRIES_S:
            if why is None or self._closing.wait(pause):
                break
            refused, why = self._attempt(spans)
        self._failing = why is not None
        self._settle(len(spans), lost=refused, why=why or "the server refused them")

    def _attempt(self, spans: list[Span]) -> tuple[int, str | None]:
        """How many spans were not taken, and the error that kept all of them; None for none."""
        try:
            return min(max(0, self._exporter.send(spans)), len(spans)), None  # a server may report any number
        except ANY_FAILURE as error:  # the boundary of an exporter: the run goes on without it
            return len(spans), describe_error(error)

    def _settle(self, count: int, *, lost: int, why: str) -> None:
        with self._changed:
            self._waiting -= count
            self._sent += count - lost
            if lost:
                self._lose(lost, why)

    def _lose(self, count: int, why: str) -> None:
        if not self._lost:
            logger.warning("%s: spans are lost, and the run goes on without them: %s", self._place, why)
        self._lost += count
