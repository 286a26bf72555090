"""Register the workflow `command`, which runs its own gateway while it is open."""

import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

from nat.builder.builder import Builder, EvalBuilder
from nat.builder.function_info import FunctionInfo
from nat.errors import ConfigError
from nat.gateway import WRAPPER_TYPE, check_installed
from nat.plugins.command.config import CommandConfig
from nat.registry.decorators import register_function

KEPT_FOLDERS = "folders"


@register_function(config_type=CommandConfig)
async def command(config: CommandConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """Listen on a free port of this machine, and run the program for each input."""
    check(config)
    from nat.gateway.access import Keyring
    from nat.gateway.app import GatewayApp
    from nat.http.server import listening
    from nat.plugins.command.workflow import CommandWorkflow

    upstream = await builder.get_llm(config.llm, wrapper_type=WRAPPER_TYPE)
    keyring = Keyring()
    async with listening(GatewayApp(keyring)) as url:
        workflow = CommandWorkflow(config, upstream, keyring, url=url, kept_in=_kept_in(builder))
        yield FunctionInfo.from_fn(workflow.run, description="Runs a program that calls the model over HTTP")


def check(config: CommandConfig) -> None:
    """Raise ConfigError for what would fail in every rollout."""
    findings = []
    if isinstance(config.command, list) and "/" not in config.command[0] and shutil.which(config.command[0]) is None:
        findings.append(f"workflow.command: there is no program {config.command[0]!r} on the PATH")
    if config.folder is not None and not config.folder.is_dir():
        findings.append(f"workflow.folder: {config.folder} is not a folder (paths start at the current one)")
    if findings:
        raise ConfigError(findings)
    check_installed("command")


def _kept_in(builder: Builder) -> Path:
    """A folder in the run's folder; without a run, beside the reports."""
    if builder.run_dir is not None:
        return builder.run_dir / KEPT_FOLDERS
    return (builder.get_output_dir() if isinstance(builder, EvalBuilder) else Path()) / KEPT_FOLDERS
