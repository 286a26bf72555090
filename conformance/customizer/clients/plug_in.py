"""The toolkit's plug-in, unmodified: its trainer and adapter, with pairs from a scripted builder.

Reads its settings from CUSTOMIZER, and prints the final status as JSON.
"""

import asyncio
import json
import os
from typing import Any

from nat.data_models.finetuning import (
    DPOItem,
    FinetuneConfig,
    OpenAIMessage,
    Trajectory,
    TrajectoryBuilderConfig,
    TrajectoryCollection,
)
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder
from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerAdapterConfig, NeMoCustomizerTrainerConfig
from nat.plugins.customizer.dpo.trainer import NeMoCustomizerTrainer
from nat.plugins.customizer.dpo.trainer_adapter import NeMoCustomizerTrainerAdapter

SETTINGS = json.loads(os.environ["CUSTOMIZER"])


class Pairs(TrajectoryBuilder):
    """Ten pairs."""

    async def start_run(self, run_id: str, meta: Any = None) -> None:
        pass

    async def finalize(self, run_id: str, meta: Any = None) -> TrajectoryCollection:
        groups = []
        for number in range(10):
            prompt = [
                OpenAIMessage(role="system", content="You play X."),
                OpenAIMessage(role="user", content=f"move {number}?"),
            ]
            item = DPOItem(prompt=prompt, chosen_response="centre", rejected_response="edge")
            groups.append([Trajectory(episode=[item], reward=1.0, metadata={"example_id": str(number)})])
        return TrajectoryCollection(trajectories=groups, run_id=run_id)

    def log_progress(self, run_id: str, metrics: Any, output_dir: Any = None) -> None:
        pass


async def main() -> None:
    """One run, as the plug-in's guide has it."""
    trainer = NeMoCustomizerTrainer(trainer_config=NeMoCustomizerTrainerConfig())
    adapter = NeMoCustomizerTrainerAdapter(NeMoCustomizerTrainerAdapterConfig(**SETTINGS))
    await trainer.bind_components(trajectory_builder=Pairs(TrajectoryBuilderConfig()), trainer_adapter=adapter)
    await trainer.initialize(FinetuneConfig(output_dir="output"))
    (status,) = await trainer.run(num_epochs=1)
    await trainer.cleanup()
    print(json.dumps(status.model_dump(mode="json")))


asyncio.run(main())
