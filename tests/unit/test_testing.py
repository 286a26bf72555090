"""Agents are played without their model: `nat.testing`."""

import json
import sys

import pytest

from nat.errors import WorkflowError
from nat.registry.catalog import pushed_catalog
from nat.testing import Call, Say, play

AGENT = """
import json

from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("tools-look", "listen")]


class PlayedConfig(FunctionBaseConfig, name="played"):
    llm: LLMRef


@register_function(config_type=PlayedConfig)
async def played(config, builder):
    client = await builder.get_llm(config.llm, wrapper_type="openai")

    async def said(how: str) -> str:
        request = {"model": client.model_name, "messages": [{"role": "user", "content": how}], "tools": TOOLS}
        if how == "fails":
            raise ValueError("the agent is broken")
        if how != "streams":
            reply = await client.chat.completions.create(**request)
            called = reply.choices[0].message.tool_calls
            return called[0].model_dump_json() if called else reply.choices[0].message.content
        stream = await client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True})
        events = [event async for event in stream]
        assert events[-1].usage.total_tokens
        return "".join(choice.delta.content or "" for event in events for choice in event.choices)

    yield FunctionInfo.from_fn(said)
"""
CONFIG = """
imports: [played_agent.py]
llms:
  student: {_type: local, model: ./nowhere}
workflow: {_type: played, llm: student}
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A folder with an agent; no model is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "played_agent.py").write_text(AGENT)
    (tmp_path / "config.yml").write_text(CONFIG)
    with pushed_catalog():
        yield
    sys.modules.pop("played_agent", None)


@pytest.mark.parametrize("how", ["asks", "streams"])
def test_a_script_answers_instead_of_the_model(how):
    """The agent's output and its requests come back; streamed or not, the answer is the same."""
    played = play("config.yml", how, [Say("hello")])
    assert played.answer == "hello"
    assert [request["messages"] for request in played.requests] == [[{"role": "user", "content": how}]]


def test_a_tool_is_called_under_the_name_that_the_agent_offers():
    """A framework's prefix before the tool's name is found; the arguments are the script's."""
    played = play("config.yml", "asks", [Call("look", at="home")])
    function = json.loads(played.answer)["function"]
    assert function == {"name": "tools-look", "arguments": '{"at": "home"}'}


@pytest.mark.parametrize(
    ("how", "script", "message"),
    [
        ("asks", [Call("smell")], "the agent offers no tool 'smell', but listen, tools-look"),
        ("asks", [], "the agent asked 1 times, and the script has 0 answers"),
        ("asks", [Say("a"), Say("b")], "the script has 2 answers, and the agent asked 1 times"),
        ("fails", [Say("a")], "the agent is broken"),
    ],
)
def test_a_script_that_does_not_fit_fails_the_test(how, script, message):
    """The error says what the agent did; nothing passes by accident."""
    with pytest.raises(WorkflowError, match=message):
        play("config.yml", how, script)
