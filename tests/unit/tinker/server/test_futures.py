"""Requests run once, and polls end in time."""

import asyncio

import pytest

from nat.errors import BatchRefused
from nat.http.errors import ApiError
from nat.tinker.server import futures as module
from nat.tinker.server.futures import ENTRY_VALUES, Futures, Result


async def test_a_poll_ends_before_the_client_gives_up():
    """`try_again` comes in time; the request goes on, and its result is read later."""
    futures, gate = Futures(), asyncio.Event()

    async def work():
        await gate.wait()
        return Result(lambda: {"done": True})

    futures.begin("a", work)
    assert (await futures.poll("a", 0.01)).json() == {
        "type": "try_again",
        "request_id": "a",
        "queue_state": "active",
    }
    gate.set()
    assert (await futures.poll("a", 1.0)).json() == {"done": True}


async def test_the_oldest_results_are_forgotten(monkeypatch):
    """A request that has ended can be read again until newer ones need its place; then it is unknown."""
    monkeypatch.setattr(module, "MAX_KEPT_VALUES", 2 * (ENTRY_VALUES + 1))
    futures = Futures()

    async def work():
        return Result(lambda: {"done": True})

    for name in "abc":
        futures.begin(name, work)
        assert (await futures.poll(name, 1.0)).json() == {"done": True}
        await asyncio.sleep(0)
    assert (await futures.poll("c", 1.0)).json() == {"done": True}
    with pytest.raises(ApiError, match="no request 'a'"):
        await futures.poll("a")


async def test_a_failure_is_the_client_s_or_the_server_s(caplog):
    """What the client can correct says so; of anything else the log has the traceback."""
    futures = Futures()

    async def fail(error):
        raise error

    for error, category in ((BatchRefused("no", hint="do"), "user"), (ApiError("x", status=500), "server")):
        futures.begin(category, lambda error=error: fail(error))
        assert (await futures.poll(category, 1.0)).json()["category"] == category
    futures.begin("bug", lambda: fail(ZeroDivisionError("bug")))
    assert "ZeroDivisionError: bug" in (await futures.poll("bug", 1.0)).json()["error"]
    assert "a request of a client failed" in caplog.text
