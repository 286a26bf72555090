"""How the metrics stream ends, seen by a real client on a real socket."""

import asyncio
import json

import httpx
import pytest

from fakes.art_clients import ArtClient
from nat.errors import TrainingFailed

ART = ArtClient()


@pytest.fixture
async def ready(wire):
    await wire.post("/_prepare_backend_for_training", json=ART.prepare())
    return wire


async def test_the_stream_ends_when_the_checkpoint_is_there(ready, models):
    """Steps come as they happen; the end comes no earlier than the new step."""
    async with ready.stream("POST", "/_train_model", json=ART.train()) as answer:
        lines = answer.aiter_lines()
        assert [json.loads(await anext(lines))["loss"] for _ in range(2)] == [0.5, 0.25]
        rest = asyncio.ensure_future(anext(lines, "the end"))
        assert (await ready.post("/_get_step", json=ART.model())).json() == 0
        assert not rest.done()
        models.go.set()
        assert await rest == "the end"
    assert (await ready.post("/_get_step", json=ART.model())).json() == 1
    assert not models.calls[0].canceled


@pytest.mark.parametrize("error", [TrainingFailed("the gradient is zero"), RuntimeError("a bug")])
@pytest.mark.parametrize("steps", [0, 2])
async def test_a_failure_cuts_the_connection(ready, models, caplog, error, steps):
    """No line tells of it, because no client would look there: the body ends without its last chunk.

    The server's log has a traceback only if it is a bug.
    """
    models.error = error
    del models.steps_of_a_call[steps:]
    models.go.set()
    lines = []
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):  # noqa: PT012 - the lines before the end count
        async with ready.stream("POST", "/_train_model", json=ART.train()) as answer:
            assert answer.status_code == 200
            lines.extend([line async for line in answer.aiter_lines()])
    assert len(lines) <= steps
    assert any(record.exc_info for record in caplog.records) == isinstance(error, RuntimeError)
    assert (await ready.post("/_get_step", json=ART.model())).json() == 0


async def test_a_client_that_leaves_cancels_its_call(ready, models):
    """Nobody waits for the weights, so they stay as they were."""
    async with ready.stream("POST", "/_train_model", json=ART.train()) as answer:
        await anext(answer.aiter_lines())
    while not models.calls[0].canceled:
        await asyncio.wait_for(ready.get("/healthcheck"), 5)
    assert (await ready.post("/_get_step", json=ART.model())).json() == 0


async def test_a_batch_without_signal_gives_one_line(ready, models):
    """No gradient step, and no number of a loss that was not computed; the step advances all the same."""
    models.steps_of_a_call = [{"num_gradient_steps": 0.0}]
    models.go.set()
    answer = await ready.post("/_train_model", json=ART.train(1.0, 1.0))
    (line,) = answer.text.splitlines()
    told = json.loads(line)
    assert (told["num_gradient_steps"], told["data/step_num_groups_trainable"]) == (0, 0)
    assert "loss" not in told
    assert (await ready.post("/_get_step", json=ART.model())).json() == 1
