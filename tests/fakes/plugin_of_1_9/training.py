"""The plug-in's trajectory builder and the adapter that turns the dial; their paths are not in nat.plugin_api."""

import asyncio
from typing import Any

from pydantic import Field

from nat.cli.register_workflow import register_trainer_adapter, register_trajectory_builder
from nat.data_models.finetuning import (
    EpisodeItem,
    EpisodeItemRole,
    TrainerAdapterConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrainingStatusEnum,
    Trajectory,
    TrajectoryBuilderConfig,
    TrajectoryCollection,
)
from nat.data_models.intermediate_step import IntermediateStepType
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder
from nat.plugin_api import Builder, LLMFrameworkEnum, LLMRef


class DialTrajectoryBuilderConfig(TrajectoryBuilderConfig, name="dial_traj_builder"):
    """Several answers to each question."""

    num_generations: int = Field(default=5, ge=1)


class DialTrajectoryBuilder(TrajectoryBuilder):
    def __init__(self, trajectory_builder_config: DialTrajectoryBuilderConfig):
        super().__init__(trajectory_builder_config)
        self.evaluation_runs: dict[str, list[asyncio.Task]] = {}

    async def start_run(self, run_id: str, meta: dict | None = None) -> None:
        count = self.trajectory_builder_config.num_generations
        self.evaluation_runs[run_id] = [asyncio.create_task(self.run_eval()) for _ in range(count)]

    async def finalize(self, run_id: str, meta: dict | None = None) -> TrajectoryCollection:
        groups: dict[Any, list[Trajectory]] = {}
        for generation, result in enumerate(await asyncio.gather(*self.evaluation_runs.pop(run_id))):
            items = {item.id: item for item in result.eval_input.eval_input_items}
            for _, output in result.evaluation_results:
                for scored in output.eval_output_items:
                    item = items[scored.id]
                    [answer] = [s for s in item.trajectory if s.event_type == IntermediateStepType.LLM_END]
                    episode = [
                        EpisodeItem(role=EpisodeItemRole.USER, content=item.input_obj),
                        EpisodeItem(
                            role=EpisodeItemRole.ASSISTANT,
                            content=answer.data.output,
                            logprobs=answer.data.payload["logprobs"],
                        ),
                    ]
                    reward = await self.compute_reward(scored)
                    metadata = {"id": scored.id, "generation": generation}
                    groups.setdefault(scored.id, []).append(
                        Trajectory(episode=episode, reward=reward, metadata=metadata)
                    )
        return TrajectoryCollection(trajectories=list(groups.values()), run_id=run_id)

    def log_progress(self, run_id: str, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        pass


@register_trajectory_builder(config_type=DialTrajectoryBuilderConfig)
async def dial_traj_builder(config: DialTrajectoryBuilderConfig, builder: Builder):
    yield DialTrajectoryBuilder(trajectory_builder_config=config)


class DialAdapterConfig(TrainerAdapterConfig, name="dial_trainer_adapter"):
    """Turns a dial towards the answers with a higher reward."""

    llm: LLMRef
    step: float = 4.0


class DialAdapter(TrainerAdapter):
    def __init__(self, adapter_config: DialAdapterConfig, dial: Any):
        super().__init__(adapter_config)
        self.dial = dial

    async def is_healthy(self) -> bool:
        return True

    async def submit(self, trajectories: TrajectoryCollection) -> TrainingJobRef:
        slopes = []
        for group in trajectories.trajectories:
            mean = sum(t.reward for t in group) / len(group)
            slopes += [(t.reward - mean) * (1 if t.episode[-1].content == "high" else -1) for t in group]
        self.dial.weight += self.adapter_config.step * sum(slopes) / len(slopes)
        return TrainingJobRef(run_id=trajectories.run_id, backend="dial")

    async def status(self, ref: TrainingJobRef) -> TrainingJobStatus:
        return TrainingJobStatus(run_id=ref.run_id, backend="dial", status=TrainingStatusEnum.COMPLETED, progress=100.0)

    async def wait_until_complete(self, ref: TrainingJobRef, poll_interval: float = 10.0) -> TrainingJobStatus:
        return await self.status(ref)

    def log_progress(self, ref: TrainingJobRef, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        pass


@register_trainer_adapter(config_type=DialAdapterConfig)
async def dial_trainer_adapter(config: DialAdapterConfig, builder: Builder):
    yield DialAdapter(config, await builder.get_llm(config.llm, wrapper_type=LLMFrameworkEnum.LANGCHAIN))
