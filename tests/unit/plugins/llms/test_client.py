"""The OpenAI SDK's client inside rollouts."""

import asyncio
import itertools
from typing import Any

import openai
import pytest
from openai import OpenAI

from fakes.openai_replies import Refuse, Say, message_ids, prompt_ids
from fakes.openai_server import OpenAIServer, SeenRequest
from nat.builder.context import Context, ContextState
from nat.builder.threads import run_in_thread
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import CapturePolicy, capturing
from nat.capture.steps import failed_calls
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepType
from nat.data_models.llm import LLMFrameworkEnum
from nat.data_models.llm_call import LLMCall
from nat.errors import ConfigError
from nat.finetuning.trajectories.calls import tokens_of_call
from nat.plugins import register  # noqa: F401 - registers the client
from nat.plugins.llms.client import OpenAIClient, open_client
from nat.plugins.llms.openai import OpenAIModelConfig

EXACT = CapturePolicy(logprobs=True, token_ids=True, seed=1)
NO_WAIT = {"retry-after-ms": "1"}


def open_for(server: OpenAIServer, **fields: Any) -> OpenAIClient:
    return open_client(OpenAIModelConfig(model_name="m", base_url=server.base_url, **fields), llm_name="player")


async def record(rollout: Any, policy: CapturePolicy = EXACT) -> list[IntermediateStep]:
    """The steps of one rollout."""
    steps: list[IntermediateStep] = []
    with ContextState().active() as context, capturing(policy):
        context.intermediate_step_manager.subscribe(steps.append)
        await rollout
    return steps


def ends(steps: list[IntermediateStep]) -> list[IntermediateStep]:
    return [step for step in steps if step.event_type is IntermediateStepType.LLM_END]


def calls(steps: list[IntermediateStep]) -> list[LLMCall]:
    return [step.metadata.llm_call for step in ends(steps)]


async def ask(client: OpenAIClient, messages: list[dict[str, Any]], *, stream: bool = False, **options: Any):
    """One turn, streamed or not; the assistant's message from the SDK."""
    create = client.chat.completions.create
    if not stream:
        return (await create(model=client.model_name, messages=messages, **options)).choices[0].message
    text = ""
    async for chunk in await create(model=client.model_name, messages=messages, stream=True, **options):
        text += chunk.choices[0].delta.content or ""
    return text


async def test_32_concurrent_rollouts_are_separate_and_exact():
    """Each call is recorded in its own rollout and function, in order, as the server saw it."""

    async def echo(request: SeenRequest) -> Say:
        await asyncio.sleep(0)
        return Say(f"re: {request.last_text}")

    async def play(client: OpenAIClient, name: str) -> None:
        history: list[dict[str, Any]] = [{"role": "system", "content": f"you are {name}"}]
        for turn in range(4):
            with Context.get().push_active_function(f"turn_{turn}", None):
                history.append({"role": "user", "content": f"{name} yes"})
                said = await ask(client, history, stream=turn % 2 == 1)
                history.append({"role": "assistant", "content": said if isinstance(said, str) else said.content})

    async with OpenAIServer(echo) as server, open_for(server) as client:
        names = [f"player {i}" for i in range(32)]
        rollouts = await asyncio.gather(*(record(play(client, name)) for name in names))
    for name, steps in zip(names, rollouts, strict=True):
        made = calls(steps)
        assert [step.function_ancestry.function_name for step in ends(steps)] == [f"turn_{turn}" for turn in range(4)]
        history: list[dict[str, Any]] = [{"role": "system", "content": f"you are {name}"}]
        for call in made:
            history.append({"role": "user", "content": f"{name} yes"})
            assert call.messages == history
            assert (call.llm_name, call.model) == ("player", "m")
            assert call.prompt_token_ids == prompt_ids(history)
            assert call.token_ids == message_ids(call.message)
            assert tokens_of_call(call)
            history.append({"role": "assistant", "content": f"re: {name} yes"})
        for earlier, later in itertools.pairwise(made):
            so_far = earlier.prompt_token_ids + earlier.token_ids
            assert later.prompt_token_ids[: len(so_far)] == so_far


async def test_a_retry_that_succeeds_is_one_call():
    """Its failed attempts are counted, with the server's message."""
    script = [Refuse(503, "busy", NO_WAIT), Refuse(429, "slow down", NO_WAIT), Say("at last")]
    async with OpenAIServer(script) as server, open_for(server) as client:
        steps = await record(ask(client, [{"role": "user", "content": "hi"}]))
    assert [call.message["content"] for call in calls(steps)] == ["at last"]
    assert [(failed.status, failed.error) for failed in failed_calls(steps)] == [(503, "busy"), (429, "slow down")]
    assert len({body["seed"] for body in server.bodies}) == 1


async def test_an_error_reaches_the_agent_unchanged():
    """The agent gets the SDK's own exception with the server's message; no call is recorded."""
    async with OpenAIServer([Refuse(404, "no such model")]) as server, open_for(server) as client:

        async def play() -> None:
            with pytest.raises(openai.NotFoundError, match="no such model"):
                await ask(client, [{"role": "user", "content": "hi"}])

        steps = await record(play())
    assert calls(steps) == []
    assert [failed.status for failed in failed_calls(steps)] == [404]


@pytest.mark.parametrize("key", ["timeout", "request_timeout"])
async def test_the_timeout_has_an_effect(key):
    """A server that does not answer fails the call, which is counted."""

    async def never(_request: SeenRequest) -> Say:
        await asyncio.sleep(3600)
        return Say()

    async with OpenAIServer(never) as server, open_for(server, max_retries=0, **{key: 1}) as client:

        async def play() -> None:
            with pytest.raises(openai.APITimeoutError):
                await ask(client, [{"role": "user", "content": "hi"}])

        steps = await record(play())
    assert failed_calls(steps)[0].error == "ReadTimeout"


async def test_the_configs_parameters_reach_the_server():
    """Parameters of the config fill in what the agent leaves out."""
    fields = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 5, "stop": ["\n"], "extra_body": {"min_p": 0.1}}
    async with OpenAIServer() as server, open_for(server, **fields, logprobs=True, top_logprobs=2) as client:
        await ask(client, [{"role": "user", "content": "hi"}], temperature=0)
    [body] = server.bodies
    expected = {"temperature": 0, "top_p": 0.9, "max_tokens": 5, "stop": ["\n"], "min_p": 0.1}
    assert body == {"model": "m", "messages": body["messages"], **expected, "logprobs": True, "top_logprobs": 2}


async def test_a_copy_of_the_client_is_recorded_too():
    """Agents use `with_options` to set a timeout for one call."""
    async with OpenAIServer() as server, open_for(server) as client:
        copied = client.with_options(timeout=3)
        steps = await record(ask(copied, [{"role": "user", "content": "hi"}]))
    assert copied.model_name == "m"
    assert len(calls(steps)) == 1


@pytest.mark.parametrize(
    ("config", "environment", "key"),
    [
        ({"api_key": "mine"}, {"OPENAI_API_KEY": "theirs"}, "mine"),
        ({}, {"OPENAI_API_KEY": "theirs"}, "theirs"),
        ({"base_url": "http://localhost:1/v1"}, {}, "none"),
        ({}, {"OPENAI_BASE_URL": "http://localhost:1/v1"}, "none"),
    ],
)
async def test_the_key_comes_from_the_yaml_or_the_environment(monkeypatch, config, environment, key):
    """A server of one's own needs no key."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with open_client(OpenAIModelConfig(model_name="m", **config), llm_name=None) as client:
        assert client.api_key == key


def test_a_missing_key_for_openai_is_an_error(monkeypatch):
    """The error names its place in the YAML and the remedy."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"llms\.judge\.api_key"):
        open_client(OpenAIModelConfig(model_name="m"), llm_name="judge")


async def test_the_builder_gives_the_client_under_the_llms_key():
    """Calls of `get_llm(name, wrapper_type="openai")` have the YAML's name, and the builder closes the client."""
    async with OpenAIServer() as server:
        async with WorkflowBuilder() as builder:
            await builder.add_llm("opponent", OpenAIModelConfig(model_name="m", base_url=server.base_url))
            client = await builder.get_llm("opponent", wrapper_type=LLMFrameworkEnum.OPENAI)
            steps = await record(ask(client, [{"role": "user", "content": "hi"}]))
        assert client.is_closed()
    assert [(call.llm_name, call.model) for call in calls(steps)] == [("opponent", "m")]
    assert {step.framework for step in steps} == {LLMFrameworkEnum.OPENAI}


async def test_the_blocking_client_is_recorded_and_closed():
    """Its calls are steps of its thread's rollout, with the config's defaults."""
    steps, state = [], ContextState()
    state.intermediate_step_manager.subscribe(steps.append)
    async with OpenAIServer([Say("hello")]) as server:
        config = OpenAIModelConfig(model_name="m", base_url=server.base_url, temperature=0.5)
        async with WorkflowBuilder() as builder:
            await builder.add_llm("student", config)
            client = await builder.get_llm("student", wrapper_type="openai_sync")
            assert isinstance(client, OpenAI)
            assert client.with_options(max_retries=0).model_name == client.model_name == "m"

            def ask() -> str:
                messages = [{"role": "user", "content": "hi"}]
                return (
                    client.chat.completions.create(model=client.model_name, messages=messages)
                    .choices[0]
                    .message.content
                )

            with state.active():
                assert await run_in_thread(ask) == "hello"
        assert client.is_closed()
    assert server.bodies[0]["temperature"] == 0.5
    [end] = [step for step in steps if step.event_type is IntermediateStepType.LLM_END]
    assert end.framework is LLMFrameworkEnum.OPENAI_SYNC
    assert (end.metadata.llm_call.llm_name, end.metadata.llm_call.message["content"]) == ("student", "hello")
