"""Run the scripted agent of one framework in its environment: once, 32 times concurrently, and from threads.

`python -m conformance.frameworks.play FRAMEWORK BASE_URL FILE` writes the captured calls to the file, and prints one
line of JSON.
"""

import asyncio
import importlib.util
import inspect
import json
import sys
from collections.abc import AsyncGenerator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.frameworks.talks import CAUSE, Talk, expertise, talks_of

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.builder.threads import run_in_thread
from nat.builder.workflow import Workflow
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import CapturePolicy
from nat.capture.steps import failed_calls
from nat.cli.register_workflow import register_function
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepType, TraceMetadata
from nat.llm.openai_llm import OpenAIModelConfig
from nat.registry.discovery import discover_components
from nat.rollout.rollout import run_rollout

AT_ONCE, THREADS = 32, 8


class AddConfig(FunctionBaseConfig, name="add"):
    """A tool with arguments."""


class DivideConfig(FunctionBaseConfig, name="divide"):
    """A tool that fails."""


class ExpertConfig(FunctionBaseConfig, name="expert"):
    """A tool that is an agent itself."""


class PlayerConfig(FunctionBaseConfig, name="player"):
    """The agent."""

    threads: bool = False
    """Run the agent in its own thread, as blocking agents always run."""


@register_function(config_type=AddConfig)
async def add_tool(_config: AddConfig, _builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def add(a: int, b: int) -> int:
        """The sum of two numbers."""
        return a + b

    yield FunctionInfo.from_fn(add)


@register_function(config_type=DivideConfig)
async def divide_tool(_config: DivideConfig, _builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def divide(a: int, b: int) -> float:
        """A number divided by another."""
        if b == 0:
            raise ValueError(CAUSE)
        return a / b

    yield FunctionInfo.from_fn(divide)


@register_function(config_type=ExpertConfig)
async def expert_tool(_config: ExpertConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    llm = await builder.get_llm("student", AGENT.WRAPPER)

    async def expert(question: str) -> str:
        """Ask an expert."""
        answers = await said(llm, [], expertise(question), threads=False)
        return answers[-1]

    yield FunctionInfo.from_fn(expert)


@register_function(config_type=PlayerConfig)
async def player(config: PlayerConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    llm = await builder.get_llm("student", AGENT.WRAPPER)
    tools = {name: await builder.get_tool(name, AGENT.WRAPPER) for name in ("add", "divide", "expert")}

    async def play_all(rollout: str) -> dict[str, list[str]]:
        """Run every conversation that the framework supports, one after another."""
        said_by: dict[str, list[str]] = {}
        for number, talk in enumerate(talks_of(rollout)):
            if talk.scene not in AGENT.CANNOT:
                heard = await said(llm, [tools[name] for name in talk.tools], talk, threads=config.threads)
                said_by[f"{number} {talk.scene}"] = heard
        return said_by

    yield FunctionInfo.from_fn(play_all)


async def said(llm: Any, tools: list[Any], talk: Talk, *, threads: bool) -> list[str]:
    """The agent's answers; a blocking agent runs in a thread, another one is started from a thread."""
    if not inspect.iscoroutinefunction(AGENT.talk):
        return await run_in_thread(AGENT.talk, llm, tools, talk)
    if not threads:
        return await AGENT.talk(llm, tools, talk)
    loop = asyncio.get_running_loop()

    def from_thread() -> list[str]:
        return asyncio.run_coroutine_threadsafe(AGENT.talk(llm, tools, talk), loop).result()

    return await run_in_thread(from_thread)


def agent_of(framework: str) -> ModuleType:
    """Load the scripted agent by its file, because its module and the framework's package may have the same name."""
    path = Path(__file__).parent / "agents" / f"{framework}.py"
    spec = importlib.util.spec_from_file_location(f"scripted_{framework}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # frameworks that read annotations look there
    spec.loader.exec_module(module)
    return module


async def rollouts(base_url: str) -> list[Rollout]:
    """All rollouts, sorted by name."""
    llm = OpenAIModelConfig(model_name="scripted", base_url=base_url, api_key="key", max_retries=2)
    played: list[Rollout] = []
    for threads, batches in ((False, [["once-0"], [f"many-{n}" for n in range(AT_ONCE)]]), (True, [_threads()])):
        async with WorkflowBuilder() as builder:
            await builder.add_llm("student", llm)
            await builder.add_function("add", AddConfig())
            await builder.add_function("divide", DivideConfig())
            await builder.add_function("expert", ExpertConfig())
            workflow = Workflow(await builder.set_workflow(PlayerConfig(threads=threads)))
            for batch in batches:
                played += await asyncio.gather(*[_play(workflow, name) for name in batch])
    return played


def _threads() -> list[str]:
    return [f"thread-{n}" for n in range(THREADS)]


async def _play(workflow: Workflow, name: str) -> Rollout:
    item = EvalInputItem(id=name, input_obj=name, expected_output_obj=None, full_dataset_entry={})
    policy = CapturePolicy(logprobs=True, token_ids=True, seed=7)
    return await run_rollout(workflow, item, seed=7, policy=policy, deadline=900)


def record_of(rollout: Rollout) -> dict[str, Any]:
    """The captured calls as JSON, for comparison with the server's log."""
    return {
        "name": rollout.item_id,
        "error": None if rollout.error is None else str(rollout.error),
        "answers": rollout.output,
        "calls": [_call(step) for step in rollout.steps if step.event_type is IntermediateStepType.LLM_END],
        "failed": [failed.model_dump() for failed in failed_calls(rollout.steps)],
    }


def _call(step: IntermediateStep) -> dict[str, Any]:
    """The record of a call with the framework and function of its step."""
    assert isinstance(step.metadata, TraceMetadata)
    assert step.metadata.llm_call is not None
    assert step.data is not None
    return {
        "function": step.function_ancestry.function_name,
        "framework": step.framework,
        "choice": step.data.payload,
        "call": step.metadata.llm_call.model_dump(),
    }


def main(framework: str, base_url: str, file: str) -> None:
    """Run the agent, write the captured calls, and print a summary as one line of JSON."""
    played = [record_of(rollout) for rollout in asyncio.run(rollouts(base_url))]
    result = {
        "framework": framework,
        "wrapper_type": AGENT.WRAPPER,
        "versions": {package: version(package) for package in AGENT.PACKAGES},
        "cannot": AGENT.CANNOT,
        "blocks": not inspect.iscoroutinefunction(AGENT.talk),
    }
    Path(file).write_text(json.dumps(result | {"rollouts": played}))
    errors = sorted({rollout["error"] for rollout in played if rollout["error"]})
    print(json.dumps(result | {"captured": sum(len(r["calls"]) for r in played), "errors": errors}))


if __name__ == "__main__":
    discover_components()
    AGENT = agent_of(sys.argv[1])
    main(*sys.argv[1:])
