"""Unmodified releases of coding agents, run as `command` workflows, do their task and are recorded."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conformance.coding_agents.agents import AGENTS, CodingAgent
from conformance.environments import program_of

from fakes.http_server import SeenRequest
from fakes.openai_replies import Say, tool_call
from fakes.openai_server import OpenAIServer
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import CapturePolicy
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.intermediate_step import IntermediateStepType
from nat.data_models.llm_call import LLMCall
from nat.plugins.command import COMMAND_STEP, CommandRecord
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.rollout.rollout import run_rollout
from nat.wire.openai_api import ChatCompletionRequest

TASK = "Look up the number of {name} in prices.json, double it, and write it into reward.txt."
PRICES = {"tea": 21, "milk": 8}
FINAL_WORDS = "reward.txt is written."

Play = Callable[[str], Any]


def a_model_for(agent: CodingAgent) -> Callable[[SeenRequest], Say]:
    """A scripted model: it reads the file, writes twice the number, and reports that it is done."""

    def answer(request: SeenRequest) -> Say:
        messages = request.body["messages"]
        name = re.search(r"number of (\w+) in", json.dumps(messages)).group(1)
        results = [str(message["content"]) for message in messages if message["role"] == "tool"]
        if not request.body.get("tools") or len(results) > 1:
            return Say(FINAL_WORDS)
        if not results:
            return Say("I look.", (_run(agent, f"grep -o '\"{name}\": [0-9]*' prices.json", "call_look"),))
        number = int(re.search(rf'{name}": (\d+)', results[0]).group(1))
        return Say("I write.", (_run(agent, f"printf {2 * number} > reward.txt", "call_write"),))

    return answer


def _run(agent: CodingAgent, command: str, call_id: str) -> dict[str, Any]:
    return tool_call(agent.shell_tool, agent.shell_arguments(command), call_id)


@asynccontextmanager
async def opened(agent: CodingAgent, server: OpenAIServer, folder: Path) -> AsyncIterator[Play]:
    """Open the page's workflow of the agent in a copy of `folder`."""
    (folder / "prices.json").write_text(json.dumps(PRICES))
    async with WorkflowBuilder() as builder:
        llm = OpenAIModelConfig(model_name="tiny", base_url=server.base_url, max_retries=0)
        await builder.add_llm("student", llm)
        await builder.set_workflow(agent.command().model_copy(update={"folder": folder}))
        workflow = await builder.build()

        async def rollout(name: str) -> Rollout:
            item = EvalInputItem(id=name, input_obj=TASK.format(name=name), expected_output_obj=None)
            policy = CapturePolicy(logprobs=True, token_ids=True, seed=3)
            return await run_rollout(workflow, item, seed=3, policy=policy, deadline=None)

        yield rollout


def reward_in(rollout: Rollout) -> float | None:
    """The number that the agent wrote."""
    (ended,) = (step for step in rollout.steps if step.name == COMMAND_STEP)
    return CommandRecord.model_validate(ended.data.output).reward


@pytest.fixture(params=AGENTS, ids=lambda agent: agent.name)
def agent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CodingAgent:
    """An agent whose program is on the PATH."""
    program = program_of(request.param.name)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return request.param


def calls_of(rollout: Rollout) -> list[LLMCall]:
    ends = (step for step in rollout.steps if step.event_type is IntermediateStepType.LLM_END)
    return [step.metadata.llm_call for step in ends]


async def test_an_agent_does_its_task_in_one_row(agent: CodingAgent, tmp_path: Path) -> None:
    """Two concurrent agents each find their answer with tools; each prompt continues the earlier token ids."""
    async with OpenAIServer(a_model_for(agent)) as server:
        async with opened(agent, server, tmp_path) as rollout:
            rollouts = await asyncio.gather(*map(rollout, PRICES))
        for request in server.bodies:
            ChatCompletionRequest.model_validate(request)  # the backend accepts every request of the agent
    for played, number in zip(rollouts, PRICES.values(), strict=True):
        assert (played.error, reward_in(played)) == (None, 2 * number)
        assert FINAL_WORDS in played.output
        calls = calls_of(played)
        assert [call.message["content"] for call in calls] == ["I look.", "I write.", FINAL_WORDS]
        for before, after in pairwise(calls):
            history = before.prompt_token_ids + before.token_ids
            assert after.prompt_token_ids[: len(history)] == history
            assert len(after.logprobs) == len(after.token_ids)
