"""Released coding agents, unmodified, as `command` workflows: what they do is done, and what they say is recorded."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from agents import AGENTS, CodingAgent

from fakes.http_server import SeenRequest
from fakes.openai_replies import Say, tool_call
from fakes.openai_server import OpenAIServer
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.policy import CapturePolicy
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.intermediate_step import IntermediateStepType
from nat.data_models.llm_call import LLMCall
from nat.plugins.command.config import CommandConfig
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.discovery import discover_components
from nat.rollout.play import play
from nat.rollout.record import Rollout
from nat.wire.chat import ChatRequest

TASK = "Look up the number of {name} in prices.json, double it, and write it into answer.txt."
PRICES = {"tea": 21, "milk": 8}
FINAL_WORDS = "answer.txt is written."

Play = Callable[[str], Any]


def a_model_for(agent: CodingAgent) -> Callable[[SeenRequest], Say]:
    """Looks into the file, writes twice what it saw there, and says that it is done."""

    def answer(request: SeenRequest) -> Say:
        messages = request.body["messages"]
        name = re.search(r"number of (\w+) in", json.dumps(messages)).group(1)
        results = [str(message["content"]) for message in messages if message["role"] == "tool"]
        if not request.body.get("tools") or len(results) > 1:
            return Say(FINAL_WORDS)
        if not results:
            return Say("I look.", (_run(agent, f"grep -o '\"{name}\": [0-9]*' prices.json", "call_look"),))
        number = int(re.search(rf'{name}": (\d+)', results[0]).group(1))
        return Say("I write.", (_run(agent, f"printf {2 * number} > answer.txt", "call_write"),))

    return answer


def _run(agent: CodingAgent, command: str, call_id: str) -> dict[str, Any]:
    return tool_call(agent.shell_tool, agent.shell_arguments(command), call_id)


@asynccontextmanager
async def opened(agent: CodingAgent, server: OpenAIServer, folder: Path, **fields: Any) -> AsyncIterator[Play]:
    """A workflow that runs the agent in a copy of `folder`."""
    (folder / "prices.json").write_text(json.dumps(PRICES))
    discover_components()
    program = await asyncio.to_thread(agent.release.installed)
    command = agent.command.format(program=program)
    async with WorkflowBuilder() as builder:
        llm = OpenAIModelConfig(model_name="tiny", base_url=server.base_url, max_retries=0)
        await builder.add_llm("student", llm)
        fields = {"env": agent.env, "input": "argument", "timeout": 120, "folder": folder, **fields}
        await builder.set_workflow(CommandConfig(llm="student", command=command, **fields))
        workflow = await builder.build()

        async def rollout(name: str) -> Rollout:
            item = EvalInputItem(id=name, input_obj=TASK.format(name=name), expected_output_obj=None)
            policy = CapturePolicy(logprobs=True, token_ids=True, seed=3)
            return await play(workflow, item, seed=3, policy=policy, deadline=None)

        yield rollout


def calls_of(rollout: Rollout) -> list[LLMCall]:
    ends = (step for step in rollout.steps if step.event_type is IntermediateStepType.LLM_END)
    return [step.metadata.llm_call for step in ends]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.release.program)
async def test_an_agent_does_its_task_and_is_one_row(agent: CodingAgent, tmp_path: Path) -> None:
    """Two of them at once: each finds its own answer with its tools, and each prompt goes on from the ids before it."""
    async with OpenAIServer(a_model_for(agent)) as server:
        async with opened(agent, server, tmp_path, output="file", output_file="answer.txt") as rollout:
            rollouts = await asyncio.gather(*map(rollout, PRICES))
        for request in server.bodies:
            ChatRequest.model_validate(request)  # our backend takes all that the agent asks for
    for played, number in zip(rollouts, PRICES.values(), strict=True):
        assert (played.error, played.output) == (None, str(2 * number))
        calls = calls_of(played)
        assert [call.message["content"] for call in calls] == ["I look.", "I write.", FINAL_WORDS]
        for before, after in pairwise(calls):
            history = before.prompt_token_ids + before.token_ids
            assert after.prompt_token_ids[: len(history)] == history
            assert len(after.logprobs) == len(after.token_ids)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.release.program)
async def test_an_agent_prints_the_models_last_words(agent: CodingAgent, tmp_path: Path) -> None:
    """What it writes to stdout is the workflow's output."""
    async with (
        OpenAIServer(lambda _: Say(FINAL_WORDS)) as server,
        opened(agent, server, tmp_path) as rollout,
    ):
        played = await rollout("tea")
    assert played.error is None
    assert FINAL_WORDS in played.output
