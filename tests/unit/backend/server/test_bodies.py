import asyncio

from nat.backend.server.bodies import event_stream


async def test_others_have_a_turn_between_the_events_of_a_stream():
    """Events that are all there, and a client that takes each at once, would hold the event loop until the end."""
    order = []

    async def events():
        for number in range(3):
            yield b"%d" % number

    async def other():
        for _ in range(3):
            order.append("other")
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    async for event in event_stream(events()).body_iterator:
        order += [event]
    await running
    assert order[:6] == [b"0", "other", b"1", "other", b"2", "other"]
