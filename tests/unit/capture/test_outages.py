"""What is known of servers that are away, and time limits that stand still; test_waiting.py has calls."""

import asyncio
import time

import pytest
from nat.capture.outages import Outages, deadline, waited_for


def test_pauses_grow_and_spread_and_end_with_the_wait():
    """They double up to half a minute, between half and whole, and never go beyond the end."""
    outages = Outages(600)
    server = outages.server("judge")
    outages.failed(server, 0, "busy", surely=True)
    for attempt, longest in [(1, 1), (2, 2), (5, 16), (6, 30), (60, 30)]:
        pauses = [outages.pause(server, attempt, 0) for _ in range(200)]
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
    assert outages.pause(server, 1, 100) == 100
    assert 599 < outages.pause(server, 1, 10_000) <= 600


def test_an_outage_ends_when_all_servers_answer():
    """The seconds of two outages at a time count once."""
    outages = Outages(600)
    one, two = outages.server("one"), outages.server("two")
    begun = time.monotonic()
    outages.failed(one, 0, "busy", surely=True)
    outages.failed(two, 0, "busy", surely=True)
    time.sleep(0.02)
    outages.answered(one)
    assert outages.seconds > 0
    outages.answered(two)
    known = outages.seconds
    assert 0.02 <= known <= time.monotonic() - begun
    time.sleep(0.02)
    assert outages.seconds == known


def test_an_answer_clears_the_suspects():
    """Two requests that fail are an outage only without an answer between them."""
    outages = Outages(600)
    server = outages.server("judge")
    assert not outages.failed(server, 1, "status 500", surely=False)
    outages.answered(server)
    assert not outages.failed(server, 2, "status 500", surely=False)
    assert not outages.failed(server, 2, "status 500", surely=False)
    assert outages.failed(server, 3, "status 500", surely=False)
    assert outages.failed(server, 2, "status 500", surely=False)


async def test_a_limit_that_ends_before_its_pause_arrives_is_left_alone():
    """Threads pause limits through the loop, which may come to it late."""
    with waited_for(600) as outages:
        server = outages.server("judge")
        async with deadline(5):
            outages.failed(server, 0, "busy", surely=True)
        await asyncio.sleep(0)
        async with deadline(5):
            outages.answered(server)
        await asyncio.sleep(0)


@pytest.mark.parametrize("outer", [None, 60.0])
async def test_a_limit_goes_on_with_what_was_left(outer):
    """Not anew: what passed before the outage counts; other limits have theirs."""
    with waited_for(600) as outages:
        server = outages.server("judge")

        async def limited() -> None:
            async with deadline(0.2):
                await asyncio.sleep(0.1)
                outages.failed(server, 0, "busy", surely=True)
                await asyncio.sleep(0.3)
                outages.answered(server)
                await asyncio.sleep(5)

        begun = time.monotonic()
        async with deadline(outer) as unlimited:
            with pytest.raises(TimeoutError):
                await limited()
            assert 0.45 <= time.monotonic() - begun < 4
        assert not unlimited.is_over


async def test_a_limit_is_over_by_the_clock():
    """Code that blocks the loop is late, though the timer cannot fire."""
    async with deadline(0.02) as limit:
        assert not limit.is_over
        time.sleep(0.05)  # noqa: ASYNC251 - blocks, as users' code may
        assert limit.is_over
        limit.lift()
