"""Threads that render and tokenise prompts."""

import asyncio
import gc
import threading

import pytest

from nat.backend.server.threads import PromptThreads


def endless():
    while True:
        pass


def prompt_threads():
    return [thread for thread in threading.enumerate() if thread.name == "prompt"]


async def gone(threads):
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])


async def test_the_second_step_gets_the_result_of_the_first():
    """Both steps run outside of the event loop's thread."""
    here = threading.get_ident()
    made = await PromptThreads().run(threading.get_ident, lambda first: (first, threading.get_ident()))
    assert made[0] == made[1] != here


async def test_an_error_of_either_step_reaches_the_caller():
    """An error of either step reaches the caller unchanged."""
    threads = PromptThreads()
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0, str)
    with pytest.raises(ValueError, match="none"):
        await threads.run(lambda: "none", int)


async def test_a_slow_step_is_interrupted_and_frees_its_thread():
    """More slow calls than threads all end; the event loop runs meanwhile, and no thread outlives its owner."""
    before = prompt_threads()
    threads = PromptThreads(seconds=0.1, at_once=2)
    asked = [asyncio.create_task(threads.run(endless, str)) for _ in range(5)]
    assert await PromptThreads().run(lambda: "others", str.upper) == "OTHERS"
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [TimeoutError] * 5
    assert await threads.run(lambda: "again", str.upper) == "AGAIN"
    own = [thread for thread in prompt_threads() if thread not in before]
    del threads, asked, outcomes
    gc.collect()  # the errors refer to each other
    await gone(own)


async def test_threads_are_reused():
    """Starting a thread costs more than a short prompt, so as many are kept as were needed at once."""
    threads = PromptThreads(at_once=3)
    idents = {await threads.run(threading.get_ident, lambda ident: ident) for _ in range(20)}
    assert len(idents) == 1
    both = threading.Barrier(2, timeout=30)
    await asyncio.gather(*(threads.run(both.wait, str) for _ in range(2)))
    many = await asyncio.gather(*(threads.run(threading.get_ident, lambda ident: ident) for _ in range(20)))
    assert len(idents | set(many)) <= 3


async def test_cancelling_interrupts_the_first_step():
    """A cancelled request frees its thread for the next one."""
    threads, begun = PromptThreads(at_once=1), threading.Event()
    asked = asyncio.create_task(threads.run(lambda: begun.set() or endless(), str))
    await asyncio.to_thread(begun.wait)
    asked.cancel()
    assert await threads.run(lambda: "next", str.upper) == "NEXT"
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_cancelling_at_once_leaves_the_thread_usable():
    """A request may be cancelled at any moment; its thread serves the next one."""
    threads = PromptThreads(at_once=1)
    for wait in range(60):
        asked = asyncio.create_task(threads.run(endless, str))
        await asyncio.sleep(wait / 50_000)
        asked.cancel()
        assert await threads.run(lambda: "next", str.upper) == "NEXT"
        with pytest.raises(asyncio.CancelledError):
            await asked


async def test_the_second_step_is_never_interrupted():
    """The second step holds locks, so it finishes; the caller still gets its answer at the deadline."""
    threads, go_on, ended = PromptThreads(seconds=0.1), threading.Event(), threading.Event()

    def locked(_):
        go_on.wait()
        ended.set()

    with pytest.raises(TimeoutError):
        await threads.run(lambda: None, locked)
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 30)
