"""Limits that apply before anything is tokenised."""

import dataclasses

import pytest

from fakes.scripted_worker import ScriptedWorker
from fakes.tiny_model import tiny_tokenizer
from nat.backend.server.service import LengthLimits
from nat.backend.tokenizer import ChatTokenizer
from nat.http.errors import ApiError


class Untouched(ChatTokenizer):
    """A tokenizer that fails if it is called."""

    def encode_rendered(self, text):
        raise AssertionError(f"{len(text)} characters were tokenised")

    encode = encode_rendered


@pytest.fixture
async def client(connect, loaded):
    guarded = dataclasses.replace(loaded, tokenizer=Untouched(tiny_tokenizer()))
    async with connect(ScriptedWorker(guarded, "hi")) as client:
        yield client


def user(text):
    return {"role": "user", "content": text}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": [user("lorem ipsum " * 5000)]}),
        ("chat/completions", {"messages": [user("")] * 600}),
        ("completions", {"prompt": "lorem ipsum " * 5000}),
        ("completions", {"prompt": ["hi", "lorem ipsum " * 5000]}),
    ],
)
async def test_texts_beyond_the_context_are_refused_before_tokenising(client, path, fields):
    """A context of 512 tokens holds at most 512 times the longest token, and at most 512 messages."""
    answer = await client.post(f"/v1/{path}", json={"model": "scripted", **fields})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_an_error_is_short(client):
    """An error quotes only a part of what the client sent."""
    answer = await client.post("/v1/chat/completions", json={"model": "x" * 900_000, "messages": [user("hi")]})
    assert (answer.status_code, len(answer.content) < 10_000) == (404, True)


async def test_the_longest_text_that_fits_is_accepted(loaded):
    """A text of nothing but the vocabulary's longest token is accepted up to the context."""
    limits = LengthLimits.of(loaded)
    longest = max(loaded.tokenizer.hf.get_vocab(), key=len)
    text = longest * limits.tokens
    assert len(loaded.tokenizer.encode(text)) == limits.tokens
    limits.check_text(text, param="messages")
    with pytest.raises(ApiError, match="512 tokens"):
        limits.check_text("a" * (limits.characters + 1), param="messages")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": [None] * 1000}),
        ("completions", {"prompt": [None] * 1000}),
        ("completions", {"prompt": "hi", **{f"key_{n}": 1 for n in range(1000)}}),
        ("completions", {"prompt": "hi", "stop": ["x" * 2000]}),
    ],
)
async def test_a_thousand_findings_make_a_short_message(client, path, fields):
    """The time and the message do not grow with the number of findings."""
    answer = await client.post(f"/v1/{path}", json={"model": "scripted", **fields})
    assert answer.status_code == 400
    assert len(answer.json()["error"]["message"]) < 2000


"""Fields of an answer that report its tokens."""
