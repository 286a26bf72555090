"""Responses of the server are read, and shown to the agent."""

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.openai_replies import Say
from fakes.openai_server import OpenAIServer
from nat.capture.context import CapturePolicy, capturing
from nat.capture.http import CapturingAsyncClient
from nat.capture.request import CallRequest, read_request
from nat.capture.response import (
    HiddenFields,
    ResponseReader,
    UnreadableAnswer,
    plain_message,
    read_choices,
    read_completion,
)
from nat.capture.tap import Tap
from nat.capture.transport import httpx


def request(path: str = "/v1/chat/completions", **fields: Any) -> CallRequest:
    fields = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    read = read_request(path, json.dumps(fields).encode())
    assert read is not None
    return read


def chat_choice(**fields: Any) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop", **fields}


def test_vllms_fields_give_exact_tokens():
    """The prompt's ids are beside the choices, the completion's in each choice."""
    logprobs = {"content": [{"token": "o", "logprob": -0.5}, {"token": "k", "logprob": -1.5}]}
    completion = {
        "system_fingerprint": "policy@3",
        "prompt_token_ids": [1, 2],
        "choices": [chat_choice(token_ids=[3, 4], logprobs=logprobs)],
    }
    [choice] = read_choices(completion, request())
    call = choice.call
    assert (call.prompt_token_ids, call.token_ids, call.logprobs) == ([1, 2], [3, 4], [-0.5, -1.5])
    assert call.policy_version == "policy@3"


def test_why_a_tool_call_was_not_read_is_recorded_and_hidden():
    """Our server reports it with the token ids; the agent did not request either."""
    choice = chat_choice(lost_call="malformed")
    assert read_choices({"choices": [choice]}, request())[0].call.lost_call == "malformed"
    assert "lost_call" not in shown(HiddenFields(token_ids=True), {"choices": [choice]})["choices"][0]


def test_each_choice_of_a_prompt_list_belongs_to_its_prompt():
    """With n = 2 and two prompts, choices 0 and 1 belong to the first prompt; each choice has its ids."""
    asked = request("/v1/completions", prompt=["a", "b"], n=2)
    choices = [{"index": i, "text": f"t{i}", "prompt_token_ids": [i // 2]} for i in range(4)]
    found = read_choices({"choices": choices}, asked)
    assert [(c.conversation, c.call.message["content"], c.call.prompt_token_ids) for c in found] == [
        (0, "t0", [0]), (0, "t1", [0]), (1, "t2", [1]), (1, "t3", [1]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ({"content": "a", "refusal": None, "tool_calls": []}, {"role": "assistant", "content": "a"}),
        ({"content": "", "tool_calls": [1]}, {"role": "assistant", "content": None, "tool_calls": [1]}),
        ({"content": "a", "tool_calls": [1]}, {"role": "assistant", "content": "a", "tool_calls": [1]}),
        ({"content": ""}, {"role": "assistant", "content": ""}),
        (
            {"role": "assistant", "reasoning_content": "r"},
            {"role": "assistant", "content": None, "reasoning_content": "r"},
        ),
    ],
)
def test_nulls_are_dropped(message, plain):
    """Servers send different empty fields; the record has none of them."""
    assert plain_message(message) == plain


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"choices": []}', b'{"error": {"message": "no"}}'])
def test_a_200_without_a_completion_is_no_answer(body):
    """Some gateways send errors with status 200; the message quotes the body."""
    with pytest.raises(UnreadableAnswer, match="answer"):
        read_choices(read_completion(body), request())


ALL, NONE = HiddenFields(logprobs=True, token_ids=True), HiddenFields()
TOKENS = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}


def completion(**choice: Any) -> dict[str, Any]:
    told = {"prompt_token_ids": [1, 2], "broken_prefix": "answer_edited", "system_fingerprint": "m@3"}
    return {**told, "choices": [{"index": 0, "logprobs": TOKENS, "token_ids": [7], **choice}]}


def shown(hidden: HiddenFields, body: dict[str, Any]) -> dict[str, Any]:
    return json.loads(hidden.removed(body))


@given(st.data())
def test_chunks_give_the_same_text_wherever_they_are_cut(data):
    """Comments, empty lines, multi-byte letters and a last line without its end are cut anywhere."""
    chunks = [json.dumps(completion(delta={"content": text}), ensure_ascii=False) for text in ("a", "é🙂", "\\n")]
    lines = [f"data: {chunk}\n" for chunk in chunks]
    body = "\n".join([": ping\n", "event: x\n", *lines, "data: [DONE]"]).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    for events in (True, False):
        whole, cut, unhidden = (ResponseReader(request(), hidden, events=events) for hidden in (ALL, ALL, NONE))
        expected = whole.feed(body) + whole.end()
        assert b"".join(map(cut.feed, parts)) + cut.end() == expected
        assert b"".join(map(unhidden.feed, parts)) + unhidden.end() == body


@pytest.mark.parametrize("asked", [{}, {"logprobs": True, "return_token_ids": True}])
async def test_the_recording_has_what_the_agent_does_not_see(asked):
    """Whole and streamed, the agent gets what it requested; the recorded call is exact."""
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
    """A compressed body is shown uncompressed without the hidden fields, with matching headers."""
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
