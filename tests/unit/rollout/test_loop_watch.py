"""Code that blocks the event loop is named."""

import asyncio
import selectors
import threading
from traceback import FrameSummary

from nat.rollout import loop_watch
from nat.rollout.loop_watch import blocking_frame, watched_loop


async def test_the_function_that_blocks_the_loop_is_named_once():
    """The report has its file and line, and comes while it still blocks."""
    reports = []
    told = threading.Event()

    def report(text):
        reports.append(text)
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
    [text] = reports
    assert "by agent_that_blocks (" in text
    assert f"{__file__}:" in text
    assert "told.wait(60)" in text


def frame(filename: str, name: str) -> FrameSummary:
    return FrameSummary(filename, 1, name, lookup_line=False)


def test_the_users_function_is_named_and_not_its_library():
    """For a synchronous HTTP call, neither the socket nor our own frames are named."""
    library, ours = threading.__file__, loop_watch.__file__
    loop, run = frame(asyncio.events.__file__, "_run"), frame(ours, "play")
    user, socket = frame("/home/me/agent.py", "answer"), frame(library, "recv")
    assert blocking_frame([loop, run, user, socket]) == user
    assert blocking_frame([loop, run, socket]) == socket


def test_a_loop_that_runs_again_is_not_reported():
    """The loop may continue between the check and the reading of the stack."""
    script, library = frame("/home/me/run.py", "<module>"), frame(threading.__file__, "run")
    loop, select = frame(asyncio.base_events.__file__, "_run_once"), frame(selectors.__file__, "select")
    assert blocking_frame([script, library, loop, select]) is None
    assert blocking_frame([script, library, loop]) is None
