"""The trackers of a run: each observes the log from a thread of its own, and can neither stop nor slow the run.

The run's thread only says that there is something new; the tracker's thread reads it from the journal
(`nat.runs.tracker`). So what a tracker missed is still there, and it gets it as soon as it works again.
"""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Full, Queue
from threading import Event as Flag
from threading import Thread

from nat.data_models.tracker import TrackerConfig
from nat.errors import ANY_FAILURE, describe_error
from nat.finetuning.run_log import Event, RunBegun
from nat.runs.records import EpochRecord, ValidationRecord
from nat.runs.tracker import Sending

logger = logging.getLogger(__name__)

SECONDS_AT_END = 30.0
"""Time for all trackers to get the rest of a run that has ended."""
SECONDS_BETWEEN = 2.0
"""Pause of a tracker, so that short epochs are sent together."""


class TrackerThread(Thread):
    """Sends the run to one tracker. The queue holds one entry: that there is something new."""

    def __init__(self, sending: Sending) -> None:
        super().__init__(name=f"tracker {sending.name}", daemon=True)
        self.sending = sending
        self._news: Queue[None] = Queue(maxsize=1)
        self._last = Flag()
        self._failed = False
        self.done: Future[str | None] = Future()
        """Why the tracker does not have the whole run; None if it has."""

    def wake(self, *, last: bool = False) -> None:
        """Say that the journal has something new; takes microseconds. With `last`, nothing follows."""
        if last:
            self._last.set()
        with suppress(Full):
            self._news.put_nowait(None)

    def run(self) -> None:
        """Send until the end of the run is sent."""
        while True:
            self._news.get()
            last = self._last.is_set()
            failure = self._send(last=last)
            if last:
                self.done.set_result(failure)
                return
            self._last.wait(SECONDS_BETWEEN)

    def _send(self, *, last: bool) -> str | None:
        try:
            self.sending.send(last=last)
        except ANY_FAILURE as error:  # whatever a tracker does, the run goes on
            failure = describe_error(error).partition("\n")[0].rstrip(".")
            if not self._failed:  # a tracker without a network fails in every epoch
                self._failed = True
                told = "the tracker '%s' failed: %s; the run goes on without it, and it is tried again"
                logger.warning(told, self.sending.name, failure)
            return failure
        return None


class Trackers:
    """Observes a run for all its trackers."""

    def __init__(self, configs: Mapping[str, TrackerConfig]) -> None:
        self._configs = configs
        self._threads: list[TrackerThread] = []
        self._run_dir = Path()

    def __call__(self, event: Event) -> None:
        """Begin with the run, and wake the trackers after each epoch and validation."""
        match event:
            case RunBegun():
                self._run_dir = event.run_dir
                self._threads = [TrackerThread(Sending(n, c, event.run_dir)) for n, c in self._configs.items()]
                for thread in self._threads:
                    thread.start()
                    thread.wake()
            case EpochRecord() | ValidationRecord():
                for thread in self._threads:
                    thread.wake()

    async def end(self, seconds: float) -> list[str]:
        """Send the end of the run; after `seconds` give up. Says which trackers do not have all of the run."""
        for thread in self._threads:
            thread.wake(last=True)
        waiting = {thread.sending.name: asyncio.wrap_future(thread.done) for thread in self._threads}
        if waiting:
            await asyncio.wait(waiting.values(), timeout=seconds)
        late = f"it did not end within {seconds:g} s"
        failures = {name: future.result() if future.done() else late for name, future in waiting.items()}
        return [
            f"The tracker '{name}' does not have all of the run: {failure}. "
            f"Send it later: nat runs send {self._run_dir} --to {name}"
            for name, failure in failures.items()
            if failure is not None
        ]
