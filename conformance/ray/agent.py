"""A workflow without a model, whose input says what it does to its process."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig


class AgentConfig(FunctionBaseConfig, name="acts_on_its_process"):
    """No options."""


@register_function(config_type=AgentConfig)
async def agent(config: AgentConfig, builder: Builder) -> AsyncIterator[FunctionInfo]:
    """Wait, compute, block, end the process, or answer with what cannot be sent; then say where it ran."""

    async def act(message: str) -> Any:
        what, _, seconds = message.partition(" ")
        match what:
            case "wait":
                await asyncio.sleep(float(seconds))
            case "compute":
                ends = time.thread_time() + float(seconds)
                while time.thread_time() < ends:
                    pass
            case "block":
                time.sleep(float(seconds))  # noqa: ASYNC251 - the case
            case "exit":
                os._exit(9)
            case "lock":
                return {"lock": (each for each in ())}
        return {"process": os.getpid(), "folder": str(Path.cwd())}

    yield FunctionInfo.from_fn(act, description="acts on its process")
