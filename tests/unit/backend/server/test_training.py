"""Conversations are tokenized within limits that hold for every client."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nat.backend.forecast import Forecaster
from nat.backend.server.training import training_router
from nat.wire.serving import ServeOptions

TURNS = [{"role": "user", "content": "4"}, {"role": "assistant", "content": "5"}]
SHORT = {"messages": TURNS, "answers": [1]}


@pytest.fixture
def posting(connect):
    """Connects to a backend and posts conversations to it."""

    @asynccontextmanager
    async def open_backend(engine):
        forecaster = Forecaster(ServeOptions(model=Path("tiny")), engine)
        async with connect(engine, extra_routers=[training_router(None, forecaster)]) as client:

            async def post(*conversations):
                return await client.post("/v1/training/tokenize", json={"conversations": conversations})

            yield post

    return open_backend


@pytest.fixture
async def tokenize(posting, worker):
    async with posting(worker) as post:
        yield post


@pytest.mark.parametrize("answers", [[1, 1], [3, 1]])
async def test_an_answer_is_named_once(tokenize, answers):
    """A list of the same answer a million times would be a request without end."""
    response = await tokenize({"messages": TURNS * 2, "answers": answers})
    assert response.status_code == 422
    assert "answers must name each message once, in rising order" in response.text


async def test_a_request_has_a_bounded_number_of_conversations(tokenize):
    """More than the limit is an error that names it."""
    response = await tokenize(*[SHORT] * 65)
    assert response.status_code == 422
    assert "64" in response.text
