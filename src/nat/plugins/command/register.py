"""The workflow `command`, which runs its own gateway while it is open, and the evaluator `command_reward`."""

import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

from nat.builder.builder import Builder, EvalBuilder
from nat.builder.function_info import FunctionInfo
from nat.data_models.evaluator import EvalInputItem, EvaluatorBaseConfig
from nat.data_models.intermediate_step import IntermediateStepType
from nat.errors import ConfigError, EvaluationError
from nat.gateway import WRAPPER_TYPE, check_installed
from nat.plugins.command.config import COMMAND_STEP, CommandConfig, CommandRecord
from nat.plugins.evaluators.scores import Score, register_score
from nat.registry.decorators import register_function

KEPT_FOLDERS = "folders"


@register_function(config_type=CommandConfig)
async def command(config: CommandConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """Listen on a free port of this machine, and run the program for each input.

    Raises:
        ConfigError: the program or the folder is not there, which would fail in every rollout.

    """
    findings = []
    if isinstance(config.command, list) and "/" not in config.command[0] and shutil.which(config.command[0]) is None:
        findings.append(f"workflow.command: there is no program {config.command[0]!r} on the PATH")
    if config.folder is not None and not config.folder.is_dir():
        findings.append(f"workflow.folder: {config.folder} is not a folder (paths start at the current one)")
    if findings:
        raise ConfigError(findings)
    check_installed("command")
    from nat.gateway.access import Keyring
    from nat.gateway.app import GatewayApp
    from nat.http.server import listening
    from nat.plugins.command.workflow import CommandWorkflow

    beside = builder.run_dir  # without a run, folders are kept beside the reports
    if beside is None:
        beside = builder.get_output_dir() if isinstance(builder, EvalBuilder) else Path()
    upstream = await builder.get_llm(config.llm, wrapper_type=WRAPPER_TYPE)
    keyring = Keyring()
    async with listening(GatewayApp(keyring)) as url:
        workflow = CommandWorkflow(config, upstream, keyring, url=url, kept_in=beside / KEPT_FOLDERS)
        yield FunctionInfo.from_fn(workflow.run, description="Runs a program that calls the model over HTTP")


class CommandRewardConfig(EvaluatorBaseConfig, name="command_reward"):
    """The score is the number in the `reward_file` of a `command`."""


@register_score(CommandRewardConfig, "The reward that the program wrote")
def command_reward(item: EvalInputItem, _: CommandRewardConfig) -> Score:
    """Raises an error if the program wrote no number; 0 would be a guess."""
    records = [
        CommandRecord.model_validate(step.data.output)
        for step in item.trajectory
        if step.event_type is IntermediateStepType.CUSTOM_END and step.name == COMMAND_STEP and step.data is not None
    ]
    rewards = [record.reward for record in records if record.reward is not None]
    if not rewards:
        raise EvaluationError("no program wrote a reward: is the workflow a `command` with a `reward_file`?")
    return rewards[-1], {"rewards": rewards}
