import logging
import threading
import time

import pytest

from fakes.made_spans import root
from nat.data_models.telemetry_exporter import BatchConfig
from nat.telemetry.sender import SpanQueue

SOON = {"flush_interval": 0.01}


class Kept:
    """An exporter that keeps batches; it may fail or wait first."""

    def __init__(self, *, fails: int = 0, refuses: int = 0, gate: threading.Event | None = None) -> None:
        self.batches: list[list[str]] = []
        self.closed = False
        self._fails, self._refuses, self._gate = fails, refuses, gate

    def send(self, spans):
        if self._gate is not None:
            self._gate.wait(10)
        if self._fails:
            self._fails -= 1
            raise ConnectionError("nobody there")
        self.batches.append([span.attributes["nat.finetune.example_id"] for span in spans])
        return self._refuses

    def close(self):
        self.closed = True

    @property
    def sent(self):
        return [name for batch in self.batches for name in batch]


def made(*numbers):
    return len(numbers), lambda: [root(number) for number in numbers]


def lost(caplog):
    return [message for message in caplog.messages if "lost" in message]


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


def test_spans_are_sent_in_batches(caplog):
    """A batch has `batch_size` spans, whichever rollouts they are of; the last one is sent at the end."""
    kept = Kept()
    sender = SpanQueue("here", kept, BatchConfig(batch_size=3, flush_interval=60))
    sender.add(*made(1, 2))
    sender.add(*made(3, 4, 5))
    sender.close()
    assert kept.sent == ["1", "2", "3", "4", "5"]
    assert max(map(len, kept.batches)) == 3
    assert kept.closed
    assert lost(caplog) == []


def test_few_spans_are_sent_after_the_interval():
    """A slow rollout is seen soon, although no batch is full."""
    kept = Kept()
    sender = SpanQueue("here", kept, BatchConfig(**SOON))
    sender.add(*made(1))
    until(lambda: kept.sent == ["1"])
    sender.close()


def test_a_full_queue_loses_spans_and_blocks_nobody(caplog):
    """While an exporter hangs, adding takes no time; what does not fit is counted, and told twice, not per span."""
    gate = threading.Event()
    kept = Kept(gate=gate)
    sender = SpanQueue("slow", kept, BatchConfig(batch_size=1, max_queue_size=2))
    began = time.monotonic()
    for number in range(1000):
        sender.add(*made(number))
    assert time.monotonic() - began < 1
    gate.set()
    sender.close()
    assert len(kept.sent) == 2
    assert lost(caplog) == [
        "general.telemetry.tracing.slow: spans are lost, and the run goes on without them: 2 are waiting, of at most 2",
        "general.telemetry.tracing.slow: 998 of 1000 spans were lost",
    ]


def test_a_whole_epoch_fits_if_there_is_any_room():
    """What arrives at once is not torn apart by the bound: the rollouts of an epoch are judged in one moment."""
    kept = Kept()
    sender = SpanQueue("here", kept, BatchConfig(max_queue_size=2))
    sender.add(*made(*range(500)))
    sender.close()
    assert len(kept.sent) == 500


def test_a_batch_is_sent_again():
    """One failure of the network loses nothing."""
    kept = Kept(fails=1)
    sender = SpanQueue("here", kept, BatchConfig(batch_size=1))
    sender.add(*made(1))
    until(lambda: kept.sent == ["1"])
    sender.close()


def test_a_dead_exporter_is_told_once_and_ends_quickly(caplog):
    """Its name and its error stand in one message, the count in a last one; the end waits for no retry."""
    sender = SpanQueue("dead", Kept(fails=1000), BatchConfig(batch_size=1, flush_interval=0.01))
    for number in range(20):
        sender.add(*made(number))
    began = time.monotonic()
    sender.close()
    assert time.monotonic() - began < 1
    first, last = lost(caplog)
    assert first.startswith("general.telemetry.tracing.dead: spans are lost")
    assert "ConnectionError: nobody there" in first
    assert last == "general.telemetry.tracing.dead: 20 of 20 spans were lost"


def test_the_end_waits_no_longer_than_it_may(caplog):
    """An exporter that hangs is left behind after `shutdown_timeout`, with the number of its spans."""
    gate = threading.Event()
    sender = SpanQueue("stuck", Kept(gate=gate), BatchConfig(batch_size=1, shutdown_timeout=0.05))
    sender.add(*made(1, 2, 3))
    began = time.monotonic()
    sender.close()
    assert time.monotonic() - began < 1
    gate.set()
    assert lost(caplog)[-1] == "general.telemetry.tracing.stuck: 3 of 3 spans were lost"


def test_spans_that_cannot_be_made_are_lost_alone(caplog):
    """Odd steps of one rollout do not take those of others with them."""

    def broken():
        raise TypeError("odd steps")

    kept = Kept()
    sender = SpanQueue("here", kept, BatchConfig(flush_interval=60))
    sender.add(4, broken)
    sender.add(*made(1))
    sender.close()
    assert kept.sent == ["1"]
    assert lost(caplog)[-1] == "general.telemetry.tracing.here: 4 of 5 spans were lost"


@pytest.mark.parametrize("refuses", [0, 2])
def test_spans_that_a_server_refuses_are_lost(caplog, refuses):
    """A server may take a part of a request."""
    caplog.set_level(logging.WARNING)
    sender = SpanQueue("picky", Kept(refuses=refuses), BatchConfig())
    sender.add(*made(1, 2, 3))
    sender.close()
    assert lost(caplog)[1:] == ([f"general.telemetry.tracing.picky: {refuses} of 3 spans were lost"] if refuses else [])


@pytest.mark.parametrize(("refuses", "lost_at_the_end"), [(-1, []), (2**63 - 1, ["2 of 2"])])
def test_a_server_cannot_refuse_more_than_it_got(caplog, refuses, lost_at_the_end):
    """Whatever number it reports, the count at the end is of spans that were sent."""
    sender = SpanQueue("here", Kept(refuses=refuses), BatchConfig(**SOON))
    sender.add(*made(1, 2))
    sender.close()
    assert [text for text in ("2 of 2", "-1 of") if any(text in message for message in lost(caplog))] == lost_at_the_end
