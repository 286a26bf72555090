"""Code that blocks the event loop is named, and nothing else."""

import asyncio
import logging
import selectors
import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from fakes.processes import busy_machine
from nat.rollout import loop_watch
from nat.rollout.loop_watch import Blocked, Place, _called, blocking_place, watched_loop


async def test_the_function_that_blocks_the_loop_is_named_once():
    """The report has its file and line, and comes while it still blocks."""
    reports = []
    told = threading.Event()

    def report(level, text):
        reports.append((level, text))
        told.set()

    async def agent_that_blocks():
        assert told.wait(60)

    with watched_loop(report, checks=2, seconds_per_check=0.25):
        await asyncio.sleep(0.05)
        assert reports == []
        await agent_that_blocks()
        told.clear()
        await asyncio.sleep(0.05)
        threading.Timer(0.75, told.set).start()
        await agent_that_blocks()
    [(level, text)] = reports
    assert level == logging.ERROR
    assert "by agent_that_blocks (" in text
    assert f"{__file__}:" in text
    assert "told.wait(60)" in text
    assert "await an async client" in text


LIBRARY, OURS = threading.__file__, loop_watch.__file__
LOOP, RUN = Place(asyncio.events.__file__, "_run", 1), Place(OURS, "play", 1)
USER, SOCKET = Place("/home/me/agent.py", "answer", 1), Place(LIBRARY, "recv", 1)
AWAITED = Place(LIBRARY, "create", 1, is_awaited=True)
CAPTURE = Place(OURS, "record", 1, is_awaited=True)


def test_the_users_function_is_named_and_not_its_library():
    """For a synchronous HTTP call, neither the socket nor our own frames are named."""
    assert blocking_place(_called([LOOP, RUN, USER, SOCKET])) == USER
    assert blocking_place(_called([LOOP, RUN, SOCKET])) is None


def test_a_line_that_awaits_is_not_guilty():
    """What it awaits may block: a library, or our own capture of the call."""
    assert blocking_place([RUN, USER, AWAITED, SOCKET]) is None
    assert blocking_place([RUN, USER, AWAITED, CAPTURE]) is None
    own = Place("/home/me/tools.py", "search", 1, is_awaited=True)
    assert blocking_place([RUN, USER, own, SOCKET]) == own


def test_a_loop_that_runs_again_is_not_reported():
    """The loop may continue between the check and the reading of the stack."""
    script, library = Place("/home/me/run.py", "<module>", 1), Place(threading.__file__, "run", 1)
    loop, select = Place(asyncio.base_events.__file__, "_run_once", 1), Place(selectors.__file__, "select", 1)
    assert not _called([script, library, loop, select])
    assert not _called([script, library, loop])


def test_one_call_that_lasts_is_blocked_and_many_are_not():
    """An iteration of the loop with hundreds of short calls is in another one at each check."""
    one, other, blocked = object(), object(), Blocked()
    for _ in range(5):
        blocked = blocked.after(one, 1.0, 0.0)
    assert blocked == Blocked(one, 5.0)
    assert blocked.after(other, 1.0, 0.0) == Blocked(other, 1.0)
    assert blocked.after(None, 1.0, 0.0) == Blocked()


@given(st.lists(st.floats(0.0, 1.5), max_size=40))
def test_time_without_a_processor_does_not_count(waits):
    """A thread that starves is as long in a call as it worked there."""
    call, blocked = object(), Blocked()
    for waited in waits:
        blocked = blocked.after(call, 1.0, waited)
    assert abs(blocked.seconds - sum(max(0.0, 1.0 - waited) for waited in waits)) < 1e-6


async def test_our_own_code_is_no_fault_of_the_user():
    """A library's or our own frame gets no remedy for the user's code."""
    reports = []
    with watched_loop(lambda *line: reports.append(line), checks=2, seconds_per_check=0.25):
        asyncio.get_running_loop().call_later(0.01, time.sleep, 0)
        await asyncio.sleep(0)
        loop_watch._Watch(lambda *line: reports.append(line), 2, 0.25)._report_blocker([RUN, USER, AWAITED, SOCKET])
    [(level, text)] = reports
    assert level == logging.WARNING
    assert f"by recv ({LIBRARY}:1" in text
    assert "answer (/home/me/agent.py:1) awaits it" in text
    assert "await an async client" not in text


async def test_a_busy_machine_blames_nobody():
    """Beside six busy processes a call that computes for 0.3 s may take two seconds; it is not reported."""
    reports = []
    with busy_machine(), watched_loop(lambda *line: reports.append(line), checks=4, seconds_per_check=0.25):
        for _ in range(4):
            began = time.thread_time()
            while time.thread_time() - began < 0.3:
                pass
            await asyncio.sleep(0)
    assert reports == []
