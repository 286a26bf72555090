"""Functions for scripts and plug-ins: run a workflow once."""

from pathlib import Path
from typing import Any

from nat.builder.context import ContextState, RuntimeTypeEnum
from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.load import load_config
from nat.data_models.config import Config
from nat.errors import ConfigError


async def run_workflow(
    *, config: Config | None = None, config_file: Path | str | None = None, prompt: Any, to_type: Any = str
) -> Any:
    """Run a workflow on one input; the output is converted to `to_type`."""
    if (config is None) == (config_file is None):
        raise ConfigError(["give either config or config_file"])
    chosen = config if config is not None else load_config(str(config_file))
    async with WorkflowBuilder.from_config(chosen) as builder:
        workflow = await builder.build()
        with ContextState(input_message=prompt, runtime_type=RuntimeTypeEnum.RUN_OR_SERVE).active():
            return await workflow.ainvoke(prompt, to_type=to_type)
