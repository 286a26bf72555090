"""What an agent is shown of an answer."""

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.openai_replies import Say
from fakes.openai_server import OpenAIServer
from nat.capture.http import CapturingAsyncClient
from nat.capture.library import httpx
from nat.capture.policy import CapturePolicy, capturing
from nat.capture.response_filter import HiddenFields, ResponseFilter
from nat.capture.tap import Tap

ALL = HiddenFields(logprobs=True, token_ids=True)
TOKENS = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}


def completion(**choice: Any) -> dict[str, Any]:
    told = {"prompt_token_ids": [1, 2], "broken_prefix": "answer_edited", "system_fingerprint": "m@3"}
    return {**told, "choices": [{"index": 0, "logprobs": TOKENS, "token_ids": [7], **choice}]}


def shown(hidden: HiddenFields, body: dict[str, Any]) -> dict[str, Any]:
    return json.loads(hidden.removed(json.dumps(body).encode()))


def test_what_only_the_recording_asked_for_is_left_out():
    """As a server answers who was not asked for it: no ids, and null for the log probabilities."""
    assert shown(ALL, completion(text="a")) == {
        "system_fingerprint": "m@3",
        "choices": [{"index": 0, "logprobs": None, "text": "a"}],
    }


def test_what_the_agent_asked_for_it_gets():
    """One may be asked for without the other."""
    [choice] = shown(HiddenFields(token_ids=True), completion())["choices"]
    assert choice == {"index": 0, "logprobs": TOKENS}
    [choice] = shown(HiddenFields(logprobs=True), completion())["choices"]
    assert choice == {"index": 0, "logprobs": None, "token_ids": [7]}


@pytest.mark.parametrize(
    "body", [b"", b'{"logprobs"', b'["logprobs"]', b'{"choices":3,"logprobs":1', b'{"a":"logprobs"}']
)
def test_what_cannot_be_read_is_shown_as_it_is(body):
    """It is for the agent's own client to say what is wrong with it."""
    assert ALL.removed(body) == body


def test_odd_choices_are_no_error_here():
    """A server that answers nonsense is told of where the answer is read."""
    assert shown(ALL, {"logprobs": 1, "choices": 3}) == {"logprobs": None, "choices": 3}
    assert shown(ALL, {"logprobs": 1, "choices": [3]}) == {"logprobs": None, "choices": [3]}


@given(st.data())
def test_pieces_show_the_same_wherever_they_are_cut(data):
    """Comments, empty lines, letters of several bytes and the last line without its end included."""
    chunks = [json.dumps(completion(delta={"content": text}), ensure_ascii=False) for text in ("a", "é🙂", "\\n")]
    lines = [f"data: {chunk}\n" for chunk in chunks]
    body = "\n".join([": ping\n", "event: x\n", *lines, "data: [DONE]"]).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    for events in (True, False):
        whole, cut = ResponseFilter(ALL, events=events), ResponseFilter(ALL, events=events)
        expected = whole.feed(body) + whole.end()
        assert b"".join(map(cut.feed, parts)) + cut.end() == expected
    unhidden = ResponseFilter(HiddenFields(), events=True)
    assert b"".join(map(unhidden.feed, parts)) + unhidden.end() == body


def test_a_line_is_shown_as_soon_as_it_is_whole():
    """Streaming stays streaming."""
    pieces = ResponseFilter(ALL, events=True)
    line = b'data: {"choices":[{"delta":{"content":"a"},"token_ids":[7]}]}\n'
    assert pieces.feed(line[:20]) == b""
    assert pieces.feed(line[20:] + b"\nda") == b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    assert pieces.end() == b"da"


@pytest.mark.parametrize("asked", [{}, {"logprobs": True, "return_token_ids": True}])
async def test_the_recording_keeps_what_the_agent_is_not_shown(asked):
    """Whole and streamed, the agent gets the answer that it asked for; the call is exact in any case."""
    steps: list[Any] = []
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **asked}
    async with OpenAIServer([Say("one"), Say("two")]) as server, CapturingAsyncClient(Tap(steps.append)) as client:
        with capturing(CapturePolicy(logprobs=True, token_ids=True)):
            whole = await client.post(f"{server.base_url}/chat/completions", json=body)
            async with client.stream(
                "POST", f"{server.base_url}/chat/completions", json={**body, "stream": True}
            ) as response:
                streamed = "".join([text async for text in response.aiter_text()])
    for text in (whole.text, streamed):
        assert ("token_ids" in text) is bool(asked)
        assert ('"logprob"' in text) is bool(asked)
    assert whole.headers["Content-Length"] == str(len(whole.content))
    assert whole.elapsed.total_seconds() > 0
    calls = [step.metadata.llm_call for step in steps if step.metadata.llm_call is not None]
    assert [call.message["content"] for call in calls] == ["one", "two"]
    assert all(call.token_ids and call.prompt_token_ids and call.logprobs for call in calls)


async def test_a_compressed_answer_is_shown_plain():
    """What is left out is left out of the text, and the headers say what the body now is."""
    sent = gzip.compress(json.dumps(completion(message={"role": "assistant", "content": "a"})).encode())
    answer = httpx.Response(200, content=sent, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})
    steps: list[Any] = []
    async with CapturingAsyncClient(Tap(steps.append), transport=httpx.MockTransport(lambda _: answer)) as client:
        with capturing(CapturePolicy(logprobs=True, token_ids=True)):
            body = {"model": "m", "messages": []}
            response = await client.post("http://there/v1/chat/completions", json=body)
    assert response.json()["choices"][0] == {
        "index": 0,
        "logprobs": None,
        "message": {"role": "assistant", "content": "a"},
    }
    assert "Content-Encoding" not in response.headers
    assert steps[-1].metadata.llm_call.token_ids == [7]
