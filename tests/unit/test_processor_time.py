"""Work is told from waiting."""

import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.processes import Processes, busy_machine
from nat.processor_time import Patience, Work, waited_for_processor, work_of

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts this")


class Machine:
    """A clock and a meter that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.work = Work()

    def patience(self) -> Patience:
        return Patience(1, 10.0, 120.0, meter=lambda _pid: self.work, clock=lambda: self.now)


def ends_at(steps: Iterable[tuple[float, int, bool]]) -> float | None:
    """When patience ends if each second brings so much work, so many bytes, and a thread at the disk or not."""
    machine = Machine()
    patience = machine.patience()
    for seconds, written, at_disk in steps:
        machine.now += 1.0
        machine.work = Work(machine.work.seconds + seconds, machine.work.written + written, at_disk)
        if patience.ended():
            return machine.now
    return None


@pytest.mark.parametrize(
    ("second", "end"),
    [
        ((0.0, 0, False), 10.0),  # it hangs
        ((0.01, 0, False), 11.0),  # it polls
        ((1.0, 0, False), 120.0),  # it computes, or waits for a processor
        ((4.0, 0, False), 120.0),  # in four threads
        ((0.0, 4096, False), 120.0),  # it writes
        ((0.0, 8, False), 10.0),  # its threads wake each other
        ((0.0, 0, True), 120.0),  # it waits for the disk
        ((0.5, 0, False), 20.0),  # half of the time
    ],
)
def test_only_idle_seconds_count(second, end):
    """What works has time up to the bound; what hangs has as little as ever."""
    assert ends_at([second] * 200) == end


@given(st.lists(st.tuples(st.floats(0, 8), st.integers(0, 9), st.booleans()), min_size=121, max_size=130))
def test_patience_ends_between_its_limits(steps):
    """Never before the idle seconds have passed, always by the bound."""
    end = ends_at(steps)
    assert end is not None
    assert 10.0 <= end <= 120.0


def test_it_says_why_it_has_ended():
    """A process that hangs is another matter than one that works for too long."""
    for worked, why in ((0.0, "it did nothing for 10 s"), (1.0, "it still worked after 120 s")):
        machine = Machine()
        patience = machine.patience()
        machine.now, machine.work = 120.0, Work(120.0 * worked)
        assert patience.ended()
        assert str(patience) == why


def test_a_process_that_is_gone_has_done_nothing():
    """It may end between two looks."""
    assert work_of(2**22 + 1) == Work()


@linux
def test_a_thread_that_waits_for_a_processor_is_known():
    """Beside busy processes a computing thread waits; a sleeping one does not."""
    thread = threading.get_native_id()
    with busy_machine():
        before, began = waited_for_processor(thread), time.thread_time()
        while time.thread_time() - began < 0.3:
            pass
        starved = waited_for_processor(thread) - before
    before = waited_for_processor(thread)
    time.sleep(0.3)
    assert starved > 0.1
    assert waited_for_processor(thread) - before < 0.1
    assert waited_for_processor(2**22 + 1) == 0.0


@linux
def test_the_work_of_children_counts():
    """A backend may leave the work to processes of its own, and write while it computes nothing."""
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True)\\nwhile True: pass'])"
    with Processes() as processes:
        process = processes.start("-c", child, start_new_session=True)
        assert process.stdout is not None
        process.stdout.readline()
        before = work_of(process.pid)
        while work_of(process.pid).seconds < before.seconds + 0.2:
            time.sleep(0.01)
        os.killpg(process.pid, 9)
    before = work_of(os.getpid())
    with Path(os.devnull).open("wb", buffering=0) as file:
        file.write(b"x" * 10_000)
    assert work_of(os.getpid()).written >= before.written + 10_000
