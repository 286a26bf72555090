"""The metrics and the end of a training call's stream, read by a real client from a real socket."""

import asyncio
import json
import math

import httpx
import pytest

from fakes.art_clients import ArtClient
from nat.art.server.training_call import stream_metrics
from nat.errors import TrainingFailed

ART = ArtClient()


@pytest.fixture
async def ready(wire):
    await wire.post("/_prepare_backend_for_training", json=ART.prepare())
    return wire


async def test_the_stream_ends_when_the_checkpoint_is_there(ready, models):
    """Metrics of a step are sent when it ends; the stream ends only after the new checkpoint exists."""
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
    """A failure closes the connection without the last chunk, since ART's clients would not read an error line.

    The server's log has a traceback only for a bug.
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


async def test_a_client_that_disconnects_cancels_its_call(ready, models):
    """The weights stay unchanged."""
    async with ready.stream("POST", "/_train_model", json=ART.train()) as answer:
        await anext(answer.aiter_lines())
    while not models.calls[0].canceled:
        await asyncio.wait_for(ready.get("/healthcheck"), 5)
    assert (await ready.post("/_get_step", json=ART.model())).json() == 0


async def test_a_batch_without_signal_gives_one_line(ready, models):
    """A batch without signal has no gradient step and no loss, but the step number advances."""
    models.steps_of_a_call = [{"num_gradient_steps": 0.0}]
    models.go.set()
    answer = await ready.post("/_train_model", json=ART.train(1.0, 1.0))
    (line,) = answer.text.splitlines()
    told = json.loads(line)
    assert (told["num_gradient_steps"], told["data/step_num_groups_trainable"]) == (0, 0)
    assert "loss" not in told
    assert (await ready.post("/_get_step", json=ART.model())).json() == 1


STEP = {
    "learning_rate": 1e-5,
    "loss": 0.5,
    "policy_loss": 0.4,
    "entropy": 2.0,
    "grad_norm": 3.0,
    "reference_kl": 0.1,
    "update_ratio": 1e-3,
}
FACTS = {"data/step_num_trajectories": 4.0}


def test_both_families_of_names_are_in_each_line():
    """Clients up to 0.5.16 read bare names and require num_gradient_steps; later ones read prefixed names."""
    line = stream_metrics({**STEP, "update_ratio": math.nan}, {**FACTS, "other": math.inf}, 3)
    old = {"loss": 0.5, "policy_loss": 0.4, "entropy": 2.0, "grad_norm": 3.0, "kl_div": 0.1, "num_gradient_steps": 3}
    new = {"loss/train": 0.5, "loss/entropy": 2.0, "loss/grad_norm": 3.0, "loss/learning_rate": 1e-5}
    kl = {"loss/kl_policy_ref": 0.1}
    assert line == old | new | kl | FACTS | {"data/step_num_gradient_steps": 3}
    assert all(type(value) is float for value in line.values())
