"""Play an agent without its model: a script answers the calls, and everything else is real.

    played = play("config.yml", "What is 2 + 3?", [Call("add", a=2, b=3), Say("5")])
    assert played.answer == "5"

Agents in every framework and in other processes can be played.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nat.builder.workflow import Workflow
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import CapturePolicy
from nat.config.load import load_config
from nat.data_models.config import Config
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import WorkflowError
from nat.eval.result_path import answer_of
from nat.rollout.rollout import run_rollout
from nat.rollout.script import SECONDS, Call, Say, serving

__all__ = ["Call", "Played", "Say", "play"]


@dataclass(frozen=True)
class Played:
    """What the agent did."""

    answer: Any
    requests: list[dict[str, Any]]
    """The bodies of its calls of the model, in order."""


def play(config_file: str | Path, question: Any, script: Sequence[Say | Call]) -> Played:
    """Run the workflow of a YAML once, on one input, with the script as every model.

    Raises:
        WorkflowError: the workflow failed, or called the model more or less often than the script says.

    """
    with serving(script) as server:
        scripted = server.replacing_llms(load_config(Path(config_file)))
        answer, failure = asyncio.run(_rollout(scripted, question))
    if server.refused:
        raise WorkflowError(server.refused[0])
    if failure is not None:
        raise WorkflowError(f"the workflow failed: {failure}")
    if len(server.requests) < len(script):
        raise WorkflowError(
            f"the script has {len(script)} answers, and the agent asked {len(server.requests)} times",
            hint=f"it ended with {answer!r}",
        )
    return Played(answer, server.requests)


async def _rollout(config: Config, question: Any) -> tuple[Any, RolloutFailure | None]:
    item = EvalInputItem(id="played", input_obj=question, expected_output_obj=None)
    async with WorkflowBuilder.from_config(config) as builder:
        workflow = Workflow(builder.get_workflow())
        rollout = await run_rollout(workflow, item, seed=None, policy=CapturePolicy(), deadline=SECONDS)
    return (None if rollout.failed else answer_of(rollout.output, None)), rollout.error
