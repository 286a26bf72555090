"""Threads that render and tokenise prompts."""

import asyncio
import gc
import threading

import pytest

from nat.backend.server.threads import PromptThreads
from nat.http.errors import ClientDisconnected


def prompt_threads():
    return [thread for thread in threading.enumerate() if thread.name == "prompt"]


async def stays():
    """The `receive` of a client that waits for its answer."""
    await asyncio.Event().wait()


async def test_a_prompt_is_prepared_outside_of_the_event_loops_thread():
    """The event loop answers others meanwhile."""
    assert await PromptThreads().run(threading.get_ident, stays) != threading.get_ident()


async def test_an_error_reaches_the_caller():
    """An error reaches the caller unchanged."""
    with pytest.raises(ZeroDivisionError):
        await PromptThreads().run(lambda: 1 // 0, stays)


async def test_threads_end_with_their_owner():
    """No thread outlives the server's object."""
    before = prompt_threads()
    threads = PromptThreads(at_once=2)
    assert await threads.run(lambda: "once", stays) == "once"
    own = [thread for thread in prompt_threads() if thread not in before]
    assert len(own) == 1
    del threads
    gc.collect()
    await asyncio.to_thread(lambda: [thread.join() for thread in own])


async def test_threads_are_reused():
    """Starting a thread costs more than a short prompt, so as many are kept as were needed at once."""
    threads = PromptThreads(at_once=3)
    idents = {await threads.run(threading.get_ident, stays) for _ in range(20)}
    assert len(idents) == 1
    both = threading.Barrier(2, timeout=30)
    await asyncio.gather(*(threads.run(both.wait, stays) for _ in range(2)))
    many = await asyncio.gather(*(threads.run(threading.get_ident, stays) for _ in range(20)))
    assert len(idents | set(many)) <= 3


async def test_a_cancelled_call_frees_its_thread_once_it_has_ended():
    """A cancelled request holds its thread only as long as the sandbox permits."""
    threads, begun, go_on = PromptThreads(at_once=1), threading.Event(), threading.Event()
    asked = asyncio.create_task(threads.run(lambda: begun.set() or go_on.wait(), stays))
    await asyncio.to_thread(begun.wait)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    following = asyncio.create_task(threads.run(lambda: "next", stays))
    await asyncio.sleep(0)
    assert not following.done()
    go_on.set()
    assert await following == "next"


async def test_nothing_is_prepared_for_a_client_that_has_gone_while_it_waited():
    """Clients that give up and try again would fill the threads with prompts that nobody waits for."""
    threads, begun, go_on, gone = PromptThreads(at_once=1), threading.Event(), threading.Event(), asyncio.Event()
    first = asyncio.create_task(threads.run(lambda: begun.set() or go_on.wait(), stays))
    await asyncio.to_thread(begun.wait)
    prepared = []

    async def leaves():
        await gone.wait()
        return {"type": "http.disconnect"}

    waiting = asyncio.create_task(threads.run(lambda: prepared.append("left"), leaves))
    following = asyncio.create_task(threads.run(lambda: prepared.append("stayed"), stays))
    gone.set()
    with pytest.raises(ClientDisconnected):
        await waiting
    go_on.set()
    await asyncio.gather(first, following)
    assert prepared == ["stayed"]
