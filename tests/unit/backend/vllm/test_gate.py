import asyncio

from nat.backend.vllm.gate import Gate


async def test_a_closed_gate_holds_new_requests_and_waits_for_those_inside():
    """Closing ends when the last one inside has left; those that wait enter when it opens, in their order."""
    gate, events, leave = Gate(), [], asyncio.Event()

    async def request(name):
        async with gate.passing():
            events.append(name)
            await leave.wait()

    async def close():
        await gate.close()
        events.append("closed")

    async with asyncio.TaskGroup() as group:
        group.create_task(request("begun"))
        await asyncio.sleep(0)
        group.create_task(close())
        await asyncio.sleep(0)
        for name in ("held", "held, too"):
            group.create_task(request(name))
        for _ in range(5):
            await asyncio.sleep(0)
        assert events == ["begun"]
        leave.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert events == ["begun", "closed"]
        await gate.open()
    assert events == ["begun", "closed", "held", "held, too"]


async def test_a_gate_that_nobody_passed_closes_at_once():
    """So does one that a cancelled request has left."""
    gate, events = Gate(), []
    await gate.close()
    waiting = asyncio.create_task(_pass(gate, events))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await gate.open()
    await gate.close()
    assert events == []


async def _pass(gate, events):
    async with gate.passing():
        events.append("inside")


async def test_a_gate_that_is_closed_again_at_once_lets_nobody_in():
    """A request that was about to enter waits for the next opening."""
    gate, events = Gate(), []
    await gate.close()
    waiting = asyncio.create_task(_pass(gate, events))
    await asyncio.sleep(0)
    await gate.open()
    await gate.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert events == []
    await gate.open()
    await waiting
    assert events == ["inside"]
