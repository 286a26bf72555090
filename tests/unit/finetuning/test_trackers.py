"""Trackers observe a run from threads of their own."""

import asyncio
import logging
import time
from threading import Event as Flag

import pytest

from fakes.run_records import epoch_record, validation_record
from fakes.runs_on_disk import make_run
from fakes.tracker import FakeTracker, registered
from nat.finetuning import trackers as module
from nat.finetuning.events import RolloutDone, RunBegun
from nat.finetuning.trackers import Trackers, TrackerThread
from nat.registry.catalog import pushed_catalog
from nat.runs.journal import Journal
from nat.runs.records import RunState
from nat.runs.sending import Sending

SECONDS = 20.0
"""Limit of a test; all of them take a fraction."""


@pytest.fixture
def tracker():
    return FakeTracker()


@pytest.fixture
def config(tracker):
    with pushed_catalog():
        yield registered(tracker)


@pytest.fixture
def run_dir(tmp_path):
    return make_run(tmp_path, "run-1")


@pytest.fixture
def begun(config, run_dir):
    """The trackers of a run that has begun."""
    trackers = Trackers({"mine": config})
    trackers(RunBegun("run-1", run_dir, 3))
    return trackers


def failing(method, *_):
    raise OSError(f"no network for {method}")


async def test_a_tracker_has_the_whole_run_at_its_end(begun, tracker):
    """Nothing is said then."""
    begun(epoch_record(2))
    assert await begun.end(SECONDS) == []
    assert tracker.steps("avg_reward") == [0, 1, 2]
    assert tracker.given("finish") == [[RunState.COMPLETED]]


async def test_without_trackers_nothing_happens(run_dir):
    """No thread, no file."""
    trackers = Trackers({})
    trackers(RunBegun("run-1", run_dir, 3))
    trackers(epoch_record(0))
    assert await trackers.end(SECONDS) == []
    assert not (run_dir / "trackers").exists()


async def test_a_run_that_has_not_begun_is_not_sent(config, tracker):
    """A run that fails while the model loads has nothing to show."""
    assert await Trackers({"mine": config}).end(SECONDS) == []
    assert tracker.calls == []


async def test_a_failing_tracker_is_told_once_and_at_the_end(begun, tracker, caplog):
    """One warning with its name, however often it fails; the end names the command that sends the rest."""
    tracker.before = failing
    for epoch in range(3):
        begun(epoch_record(epoch))
    (line,) = await begun.end(SECONDS)
    assert len([r for r in caplog.records if r.levelno == logging.WARNING and "'mine' failed" in r.message]) <= 1
    assert "The tracker 'mine' does not have all of the run: OSError: no network for" in line
    assert line.endswith("run-1 --to mine")


async def test_a_tracker_that_ends_the_process_ends_only_itself(begun, tracker):
    """`sys.exit()` in a client library is a failure like others."""

    def leave(*_):
        raise SystemExit(2)

    tracker.before = leave
    (line,) = await begun.end(SECONDS)
    assert "'mine'" in line


async def test_what_failed_is_sent_when_the_tracker_works_again(begun, tracker):
    """Nothing is lost by an outage in the middle of a run."""
    tracker.before = failing
    begun(epoch_record(0))
    await asyncio.sleep(0.05)
    tracker.before = lambda *_: None
    assert await begun.end(SECONDS) == []
    assert tracker.steps("avg_reward") == [0, 1, 2]


async def test_a_hanging_tracker_is_left_behind(begun, tracker):
    """The run waits for it no longer than the limit, and says so."""
    released = Flag()
    tracker.before = lambda *_: released.wait(SECONDS)
    began = time.monotonic()
    for epoch in range(1000):
        begun(epoch_record(epoch))
    (line,) = await begun.end(0.1)
    assert time.monotonic() - began < SECONDS / 2
    assert "it did not end within 0.1 s" in line
    released.set()


def test_the_queue_is_bounded(config, tracker, run_dir):
    """However many epochs end while a tracker is busy, one entry waits: the rest stands in the journal."""
    thread = TrackerThread(Sending("mine", config, run_dir))
    for _ in range(1000):
        thread.wake()
    assert thread._news.qsize() == 1


def test_an_epoch_takes_the_run_less_than_a_millisecond(begun, tracker):
    """In the run's thread, an epoch with its validation only wakes the trackers."""
    events, best = [RolloutDone(None), epoch_record(0), validation_record(0)], 1.0
    for _ in range(20):
        began = time.perf_counter()
        for event in events:
            begun(event)
        best = min(best, time.perf_counter() - began)
    assert best < 0.001


def test_short_epochs_are_sent_together(config, tracker, run_dir, monkeypatch):
    """Between two sendings a tracker pauses, but not at the end."""
    thread = TrackerThread(Sending("mine", config, run_dir))
    thread.start()
    thread.wake()
    thread.wake(last=True)
    began = time.monotonic()
    assert thread.done.result(SECONDS) is None
    assert time.monotonic() - began < module.SECONDS_BETWEEN
    with Journal.open(run_dir) as journal:
        assert journal.num_epochs() == len(tracker.steps("avg_reward"))
