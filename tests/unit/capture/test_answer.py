"""Reading what comes from the server."""

import json
from typing import Any

import pytest

from nat.capture.answer import UnreadableAnswer, error_text, plain_message, read_answer, read_completion
from nat.capture.request import CallRequest, read_request


def request(path: str = "/v1/chat/completions", **fields: Any) -> CallRequest:
    fields = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    read = read_request(path, json.dumps(fields).encode())
    assert read is not None
    return read


def chat_choice(**fields: Any) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop", **fields}


def test_vllms_fields_make_the_tokens_exact():
    """The prompt's ids stand beside the choices, the completion's in each choice."""
    logprobs = {"content": [{"token": "o", "logprob": -0.5}, {"token": "k", "logprob": -1.5}]}
    completion = {
        "system_fingerprint": "policy@3",
        "prompt_token_ids": [1, 2],
        "choices": [chat_choice(token_ids=[3, 4], logprobs=logprobs)],
    }
    answer = read_answer(completion, request())
    [choice] = answer.choices
    assert (choice.prompt_token_ids, choice.token_ids, choice.logprobs) == ([1, 2], [3, 4], [-0.5, -1.5])
    assert answer.policy_version == "policy@3"


def test_choices_come_in_the_order_of_their_index():
    """A server may list them as they finish."""
    answer = read_answer(
        {"choices": [chat_choice(index=1, finish_reason="b"), chat_choice(finish_reason="a")]}, request()
    )
    assert [choice.finish_reason for choice in answer.choices] == ["a", "b"]


def test_each_choice_of_a_prompt_list_belongs_to_its_prompt():
    """With n = 2 and two prompts, choices 0 and 1 answer the first one; ids come with each choice."""
    asked = request("/v1/completions", prompt=["a", "b"], n=2)
    choices = [{"index": i, "text": f"t{i}", "prompt_token_ids": [i // 2]} for i in range(4)]
    answer = read_answer({"choices": choices}, asked)
    assert [(c.conversation, c.message["content"], c.prompt_token_ids) for c in answer.choices] == [
        (0, "t0", [0]), (0, "t1", [0]), (1, "t2", [1]), (1, "t3", [1]),
    ]  # fmt: skip


def test_a_prompt_of_ids_is_exact_whatever_the_server_says():
    """Who sends ids knows the prompt as the model sees it."""
    answer = read_answer({"choices": [{"text": "x"}]}, request("/v1/completions", prompt=[5, 6]))
    assert answer.choices[0].prompt_token_ids == [5, 6]


def test_logprobs_with_a_hole_are_none():
    """An echoed prompt begins with a token without logprob; the list then is not that of the sampled tokens."""
    choice = {"text": "x", "logprobs": {"token_logprobs": [None, -1.0]}}
    assert read_answer({"choices": [choice]}, request("/v1/completions", prompt="a")).choices[0].logprobs is None


def test_a_completions_logprobs_are_read():
    """They stand in a list beside the tokens' texts."""
    choice = {"text": "x", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-0.5, -1.0]}}
    asked = request("/v1/completions", prompt="a")
    assert read_answer({"choices": [choice]}, asked).choices[0].logprobs == [-0.5, -1.0]
    assert read_answer({"choices": [{"text": "x", "logprobs": {}}]}, asked).choices[0].logprobs is None


@pytest.mark.parametrize(("index", "conversation"), [({}, 0), ({"index": 1}, 1), ({"index": 7}, 1)])
def test_a_choice_belongs_to_a_prompt_that_was_asked(index, conversation):
    """Without an index it answers the first prompt; with one beyond the prompts, the last."""
    asked = request("/v1/completions", prompt=["a", "b"])
    [choice] = read_answer({"choices": [{"text": "x", **index}]}, asked).choices
    assert choice.conversation == conversation


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ({"content": "a", "refusal": None, "tool_calls": []}, {"role": "assistant", "content": "a"}),
        ({"content": "", "tool_calls": [1]}, {"role": "assistant", "content": None, "tool_calls": [1]}),
        (
            {"role": "assistant", "reasoning_content": "r"},
            {"role": "assistant", "content": None, "reasoning_content": "r"},
        ),
    ],
)
def test_nulls_are_not_said(message, plain):
    """Servers differ in what they leave empty; the record does not."""
    assert plain_message(message) == plain


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"choices": []}', b'{"error": {"message": "no"}}'])
def test_a_good_status_with_no_completion_is_no_answer(body):
    """Some gateways send errors with status 200; what was seen is in the message."""
    with pytest.raises(UnreadableAnswer, match="answer"):
        read_answer(read_completion(body), request())


def test_an_error_is_told_in_the_servers_words():
    """In OpenAI's shape the message; else the text as it is."""
    assert error_text(b'{"error": {"message": "too long"}}') == "too long"
    assert error_text(b'{"detail": "x"}') == '{"detail": "x"}'
    assert error_text(b"Bad Gateway \xff") == "Bad Gateway \ufffd"


@pytest.mark.parametrize(("told", "read"), [(0.5, 0.5), (None, 1), ("hot", 1), (-1, 1), (1e-9, 1), ([], 1)])
def test_a_temperature_that_is_none_is_not_believed(told, read):
    """A server's field of that name is taken for ours only if it is a temperature that can be trained at."""
    choice = {"text": "x", "logprobs_temperature": told}
    answer = read_answer({"choices": [choice]}, request("/v1/completions", prompt="a"))
    assert answer.choices[0].logprobs_temperature == read
