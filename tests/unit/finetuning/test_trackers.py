"""Trackers observe a run from threads of their own."""

import logging
import time
from threading import Event as Flag

import pytest

from fakes.run_records import epoch_record
from fakes.runs_on_disk import make_run
from fakes.tracker import FakeTracker, registered
from nat.finetuning.run_log import RunBegun
from nat.finetuning.trackers import Trackers
from nat.registry.catalog import pushed_catalog

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
