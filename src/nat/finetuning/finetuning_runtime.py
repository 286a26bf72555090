"""The runtime under the names of the guide."""

import asyncio

from nat.data_models.finetuning import FinetuneRunConfig, TrainingJobStatus
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.runtime import RunResult
from nat.finetuning.runtime import run_finetuning as run_configured

__all__ = ["finetuning_main", "run_finetuning", "run_finetuning_sync"]


async def run_finetuning(trainer: Trainer) -> list[TrainingJobStatus]:
    """Run a bound and initialized trainer, and clean up whatever happens."""
    try:
        return await trainer.run(trainer.run_config.num_epochs)
    finally:
        await trainer.cleanup()


async def finetuning_main(run_config: FinetuneRunConfig) -> RunResult:
    """The whole run, from the configuration file to the summary."""
    return await run_configured(run_config)


def run_finetuning_sync(run_config: FinetuneRunConfig) -> RunResult:
    """Run a finetuning for callers without an event loop."""
    return asyncio.run(run_configured(run_config))
