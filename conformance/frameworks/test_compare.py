"""The comparison finds every kind of difference between captured calls and the log."""

import copy
import json

import pytest
from conformance.frameworks.compare import differences, rows_of
from conformance.frameworks.scenario import cue_of, reply
from conformance.frameworks.server import Script, Served

MESSAGES = [{"role": "system", "content": "You act."}, {"role": "user", "content": "Go on. [once-0 sum]"}]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("add", "divide")]


def served() -> list[Served]:
    """Calls of the server's log: a tool call, the call with its result, and the first question again."""
    with Script() as script:
        first = _ask(script, MESSAGES)
        called = first["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "5"}
        _ask(script, [*MESSAGES, called, result])
        _ask(script, MESSAGES)
        return script.log


def _ask(script: Script, messages: list) -> dict:
    body = {"model": "scripted", "messages": messages, "tools": TOOLS, "logprobs": True, "return_token_ids": True}
    script.answer(json.dumps(body).encode())
    completion = script.log[-1].completion
    assert completion is not None
    return completion


def captured(log: list[Served]) -> list[dict]:
    """A correct capture of these calls."""
    return [_captured(call) for call in log]


def _captured(made: Served) -> dict:
    assert made.completion is not None
    choice, chat = made.completion["choices"][0], made.chat
    message = {key: value for key, value in choice["message"].items() if value is not None}
    call = {
        "messages": chat["messages"],
        "tools": chat["tools"],
        "message": {"content": None, **message},
        "finish_reason": choice["finish_reason"],
        "logprobs": [token["logprob"] for token in choice["logprobs"]["content"]],
        "prompt_token_ids": made.completion["prompt_token_ids"],
        "token_ids": choice["token_ids"],
        "model": chat["model"],
        "policy_version": made.completion["system_fingerprint"],
        "llm_name": "student",
    }
    return {"function": "<workflow>", "framework": "openai", "choice": choice, "call": call}


def test_a_correct_capture_has_no_differences():
    """Equal calls give no difference."""
    log = served()
    assert differences(log, captured(log)) == []


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_dropped_call_is_found(number):
    """A missing call is a difference, even if it repeats an earlier one."""
    log = served()
    seen = captured(log)
    del seen[number]
    assert "3 calls made, 2 captured" in differences(log, seen)


def test_an_invented_call_is_found():
    """More captured calls than made ones are a difference."""
    log = served()
    assert differences(log, [*captured(log), captured(log)[-1]]) == ["3 calls made, 4 captured"]


def test_another_order_is_found():
    """Two swapped calls are a difference."""
    log = served()
    first, second, third = captured(log)
    assert differences(log, [second, first, third])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logprobs", [-0.5]),
        ("token_ids", [1]),
        ("prompt_token_ids", None),
        ("finish_reason", "length"),
        ("tools", None),
        ("llm_name", None),
        ("messages", MESSAGES[1:]),
        ("message", {"role": "assistant", "content": "another"}),
    ],
)
def test_a_wrong_field_is_found_and_named(field, value):
    """A difference names the call and the field."""
    log = served()
    seen = copy.deepcopy(captured(log))
    seen[1]["call"][field] = value
    [found] = differences(log, seen)
    assert found.startswith(f"call 1 (sum): {field} is ")


def test_the_wrong_function_is_found():
    """A call belongs to the function that made it."""
    log = served()
    seen = captured(log)
    seen[0]["function"] = "expert"
    assert differences(log, seen) == ['call 0 (sum): function is "expert", the server\'s "<workflow>"']


def test_rows_are_counted_from_the_servers_tokens():
    """A conversation is one row, its repetition another."""
    log = served()
    assert [rows_of(log[:n]) for n in (1, 2, 3)] == [1, 1, 2]


def test_the_script_is_selected_by_marker_and_turn():
    """The last marker names the scene; the answers after it are counted as steps."""
    cue = cue_of({"messages": [*MESSAGES, {"role": "assistant", "content": "…"}]})
    assert cue is not None
    assert (cue.rollout, cue.scene, cue.spoken) == ("once-0", "sum", 1)
    assert cue_of({"messages": MESSAGES[:1]}) is None
    refused = cue_of({"messages": [{"role": "user", "content": "[once-0 busy]"}]})
    assert refused is not None
    assert [type(reply(refused, {"messages": []}, times)).__name__ for times in (1, 2)] == ["Refuse", "Say"]
