"""Agents that stop reading a stream: at its end, once they know enough, or before they begin."""

import asyncio
import inspect
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from fakes.openai_replies import Say, message_ids
from fakes.openai_server import OpenAIServer
from nat.capture.context import CapturePolicy
from nat.capture.http import CapturingAsyncClient, CapturingClient
from nat.capture.steps import failed_calls
from nat.capture.tap import Tap
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepType
from nat.finetuning.trajectories.calls import tokens_of_call
from nat.plugins.llms.client import push_step
from nat.rollout.rollout import run_rollout

SAID = "hello world"
ROUTES = {"chat": {"messages": [{"role": "user", "content": "hi"}]}, "completions": {"prompt": "hi"}}
USAGE = {"stream_options": {"include_usage": True}}


class Agent:
    """Leaves a stream, which nobody closes, `at` its end, its first text, or nothing."""

    def __init__(self, at: str, *, route: str = "chat", blocking: bool = False, n: int = 1, **options: Any) -> None:
        self.at, self.route, self.blocking, self.unfinished = at, route, blocking, n
        self.asked = {"model": "m", "stream": True, "n": n, **ROUTES[route], **options}
        self.opened: list[Any] = []
        self.seen: list[IntermediateStep] = []
        """The calls that were recorded when it left."""

    async def play(self) -> Rollout:
        """The server sends no more than the second event until the agent has left, unless it reads on to the end."""
        left, steps, (first, *others) = asyncio.Event(), list[IntermediateStep](), [Say(SAID)] * self.unfinished

        async def hold(number: int) -> None:
            if self.at != "end" and number > 1:
                await left.wait()

        async with OpenAIServer([Say(first.content, others=tuple(others))], before_event=hold) as server:
            self.server = {"base_url": server.base_url, "api_key": "k"}
            item = EvalInputItem(id="a", input_obj=steps, expected_output_obj=None)
            exact = CapturePolicy(logprobs=True, token_ids=True)
            rollout = await run_rollout(self, item, seed=None, policy=exact, deadline=None, on_step=steps.append)
            left.set()
            for client in self.opened[::2]:  # the streams stay open
                if inspect.isawaitable(closing := client.close()):
                    await closing
        return rollout

    async def ainvoke(self, steps: list[IntermediateStep]) -> None:
        if self.blocking:
            await asyncio.to_thread(self.read)
        else:
            client = AsyncOpenAI(**self.server, http_client=CapturingAsyncClient(Tap(push_step)))
            self.opened += [client, await self.create(client)(**self.asked)]
            if self.at != "nothing":
                async for chunk in self.opened[1]:
                    if self.leaves(chunk):
                        break
        self.seen = calls_of(steps)

    def read(self) -> None:
        client = OpenAI(**self.server, http_client=CapturingClient(Tap(push_step)))
        self.opened += [client, self.create(client)(**self.asked)]
        for chunk in self.opened[1] if self.at != "nothing" else ():
            if self.leaves(chunk):
                return

    def create(self, client: Any) -> Any:
        return (client.chat.completions if self.route == "chat" else client.completions).create

    def leaves(self, chunk: Any) -> bool:
        self.unfinished -= sum(choice.finish_reason is not None for choice in chunk.choices)
        return not self.unfinished or (self.at == "text" and '"hell' in chunk.model_dump_json())


def calls_of(steps: list[IntermediateStep]) -> list[IntermediateStep]:
    return [step for step in steps if step.event_type is IntermediateStepType.LLM_END]


every_client = pytest.mark.parametrize(
    ("route", "blocking", "n"), [(r, b, n) for r in ROUTES for b in (False, True) for n in (1, 2)]
)


@every_client
@pytest.mark.parametrize("usage", [{}, USAGE])
async def test_a_call_is_recorded_before_its_agent_sees_the_end(route, blocking, n, usage):
    """An agent that leaves at `finish_reason` loses neither the call nor its usage."""
    agent = Agent("end", route=route, blocking=blocking, n=n, **usage)
    rollout = await agent.play()
    calls = [end.llm_call for end in agent.seen]
    assert [(call.message["content"], call.finish_reason) for call in calls] == [(SAID, "stop")] * n
    assert all(call.token_ids == message_ids({"content": SAID}) and tokens_of_call(call) for call in calls)
    assert bool(agent.seen[0].payload.usage_info.token_usage.completion_tokens) is bool(usage)
    assert calls_of(rollout.steps) == agent.seen


@every_client
async def test_of_a_stream_that_was_left_the_tokens_received_are_recorded(route, blocking, n):
    """They were sampled, and decide what the agent does; choices of which nothing has come are left out."""
    agent = Agent("text", route=route, blocking=blocking, n=n)
    rollout = await agent.play()
    [call] = [end.llm_call for end in calls_of(rollout.steps)]
    said = call.message["content"]
    assert said in {SAID[:4], SAID[:8]}
    assert (call.token_ids, call.finish_reason) == (message_ids({"content": said})[:-1], None)
    assert tokens_of_call(call)
    assert failed_calls(rollout.steps) == agent.seen == []


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_stream_that_nobody_reads_is_a_failed_call(blocking):
    """The cause is named, and there is nothing to train."""
    rollout = await Agent("nothing", blocking=blocking).play()
    assert ["left the stream before" in failed.error for failed in failed_calls(rollout.steps)] == [True]
    assert calls_of(rollout.steps) == []


def test_a_stream_that_was_left_open_ends_without_a_word(caplog):
    """No traceback follows the end of a run in which an agent left its streams open."""
    assert len(calls_of(asyncio.run(Agent("text").play()).steps)) == 1
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
