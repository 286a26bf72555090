"""Run the agents of one page of the docs in its framework's environment against a scripted server.

`python -m conformance.frameworks.play_page FOLDER BASE_URL FILE`: the folder holds the page's code as `agent.py` and
its `config.yml`; the calls of each agent are written to the file.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from nat.builder.workflow import Workflow
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import CapturePolicy
from nat.config.load import load_config
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.intermediate_step import IntermediateStepType
from nat.llm.openai_llm import OpenAIModelConfig
from nat.registry.discovery import discover_components
from nat.registry.imports import import_components
from nat.rollout.rollout import run_rollout

DEADLINE_S = 60


def code_of(folder: Path) -> ModuleType:
    """Execute the page's code."""
    import_components(str(folder / "agent.py"))
    return sys.modules["agent"]


def agents_of(module: ModuleType) -> Iterator[str]:
    """The types of the workflows that the page registers: configurations with an `llm`."""
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, FunctionBaseConfig) and "llm" in value.model_fields:
            yield str(value.static_type())


async def played(agent: str, name: str, folder: Path, base_url: str) -> dict[str, Any]:
    """Run one rollout of one agent with the page's YAML; only the models' URLs are replaced."""
    config = load_config(folder / "config.yml", (("workflow._type", agent),))
    served = OpenAIModelConfig(model_name="scripted", base_url=base_url, api_key="key")
    config = config.model_copy(update={"llms": dict.fromkeys(config.llms, served)})
    item = EvalInputItem(id=name, input_obj=f"What is 2 + 3? [{name} sum]", expected_output_obj=None)
    policy = CapturePolicy(logprobs=True, token_ids=True, seed=7)
    async with WorkflowBuilder.from_config(config) as builder:
        workflow = Workflow(builder.get_workflow())
        rollout = await run_rollout(workflow, item, seed=7, policy=policy, deadline=DEADLINE_S)
    captured = sum(step.event_type is IntermediateStepType.LLM_END for step in rollout.steps)
    return {
        "agent": agent,
        "error": None if rollout.error is None else str(rollout.error),
        "answer": rollout.output,
        "captured": captured,
    }


def main(folder: Path, base_url: str, file: Path) -> None:
    """Run all agents of the page, one after another; the rollouts are named `page-` and the agent's number."""
    discover_components()
    agents = agents_of(code_of(folder))
    results = {
        name: asyncio.run(played(agent, name, folder, base_url))
        for name, agent in ((f"page-{number}", agent) for number, agent in enumerate(agents))
    }
    file.write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
