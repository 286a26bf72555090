"""Conversations are tokenized within limits that hold for every client."""

from pathlib import Path

import pytest

from nat.backend.forecast import Forecaster
from nat.backend.server.threads import PromptThreads
from nat.backend.server.training import training_router
from nat.wire.serving import ServeOptions

TURNS = [{"role": "user", "content": "4"}, {"role": "assistant", "content": "5"}]
SHORT = {"messages": TURNS, "answers": [1]}
LONG = {"messages": TURNS * 1000, "answers": list(range(1, 2000, 2))}
"""The template would write a million messages for its answers."""


@pytest.fixture
async def tokenize(connect, worker):
    forecaster = Forecaster(ServeOptions(model=Path("tiny")), worker)
    routers = [training_router(None, forecaster, tokenizing=PromptThreads(seconds=0.2, at_once=1))]
    async with connect(worker, extra_routers=routers) as client:

        async def post(*conversations):
            return await client.post("/v1/training/tokenize", json={"conversations": conversations})

        yield post


async def test_a_conversation_that_takes_too_long_is_left_out(tokenize):
    """It is ended at the deadline and named; those beside it have their rows."""
    slow, usual = (await tokenize(LONG, SHORT)).json()["conversations"]
    assert slow == {"rows": [], "problem": "1000 answers in 2000 messages take more than 0.2 s to tokenize"}
    assert len(usual["rows"]) == 1


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
