"""Training by a program of the user's, with the jobs, proofs and checkpoints of the embedded backend."""

import shutil
from pathlib import Path
from typing import Any

from pydantic import Field

from nat.data_models.finetuning import FinetuneConfig
from nat.errors import ConfigError
from nat.files import UserPathText
from nat.plugins.local.adapter import LocalTrainerAdapter, LocalTrainerAdapterConfig, with_backend
from nat.registry.decorators import register_trainer_adapter
from nat.sizing.forecast import ForecastRequest, TrainingForecast

_MORE_SECONDS = 600.0
"""Besides the program, for the forward passes and the proofs of an update."""


class CommandTrainerAdapterConfig(LocalTrainerAdapterConfig, name="command_trainer_adapter"):
    """Has a program of yours train a `local` LLM: it gets an epoch's rows in a folder, and leaves weights in another.

    `training` chooses advantages and proofs; the program finds all settings in `job.json`, and what it does with the
    others is its own matter.
    """

    command: list[UserPathText] | UserPathText = Field(min_length=1)
    """The program and its arguments, or one command line for the shell. Its environment has NAT_BATCH, NAT_MODEL,
    NAT_ADAPTER (with `lora`), NAT_OUTPUT and NAT_JOB."""
    teacher: None = None
    """Always null: a program has no teacher."""
    timeout: float = Field(default=3600.0, gt=0, le=10_000_000)
    """Seconds that the program may take for an epoch; then it is ended."""


class CommandTrainerAdapter(LocalTrainerAdapter):
    """One run of the program per epoch; a job that was trained is not trained again."""

    def __init__(self, adapter_config: CommandTrainerAdapterConfig, **parts: Any) -> None:
        patient = adapter_config.model_copy(update={"timeout": adapter_config.timeout + _MORE_SECONDS})
        super().__init__(patient, **parts)
        command = adapter_config.command
        self._arguments = ["/bin/sh", "-c", command, "sh"] if isinstance(command, str) else command
        self._program_seconds = adapter_config.timeout

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Check the settings before the first rollout.

        Raises:
            ConfigError: the program is not there, or epochs would overlap.

        """
        program, findings = self._arguments[0], []
        if shutil.which(program) is None:
            findings.append(f"trainer adapter: command: there is no program {program!r} (paths start at {Path.cwd()})")
        if run_config.max_staleness:
            findings.append(
                f"finetuning.max_staleness: {run_config.max_staleness}, but a program trains while nothing is played"
            )
        if findings:
            raise ConfigError(findings, hint="correct the path of the program, and leave max_staleness at 0")
        await super().initialize(run_config)

    async def forecast(self, request: ForecastRequest) -> TrainingForecast | None:
        """None: what a program takes is not known."""
        return None

    def _more_of_job(self) -> dict[str, Any]:
        return {"program": {"arguments": self._arguments, "timeout": self._program_seconds}}


register_trainer_adapter(config_type=CommandTrainerAdapterConfig)(with_backend(CommandTrainerAdapter))
