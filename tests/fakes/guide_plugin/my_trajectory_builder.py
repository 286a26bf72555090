"""The guide's custom trajectory builder."""

import asyncio
import json
from pathlib import Path
from typing import Any

from pydantic import Field

from nat.data_models.finetuning import (
    EpisodeItem,
    EpisodeItemRole,
    Trajectory,
    TrajectoryBuilderConfig,
    TrajectoryCollection,
)
from nat.data_models.intermediate_step import IntermediateStepType
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder


class MyTrajectoryBuilderConfig(TrajectoryBuilderConfig, name="my_traj_builder"):
    """Configuration for my custom trajectory builder."""

    num_generations: int = Field(default=2, ge=1, description="Number of trajectory generations per example")
    include_tool_calls: bool = Field(default=True, description="Whether to include tool call messages in trajectories")
    min_episode_length: int = Field(default=2, description="Minimum number of messages required for a valid trajectory")


class MyTrajectoryBuilder(TrajectoryBuilder):
    def __init__(self, trajectory_builder_config: MyTrajectoryBuilderConfig):
        super().__init__(trajectory_builder_config)
        self.evaluation_runs: dict[str, list[asyncio.Task]] = {}

    async def start_run(self, run_id: str, meta: dict | None = None) -> None:
        count = self.trajectory_builder_config.num_generations
        self.evaluation_runs[run_id] = [asyncio.create_task(self.run_eval()) for _ in range(count)]

    async def finalize(self, run_id: str, meta: dict | None = None) -> TrajectoryCollection:
        results = await asyncio.gather(*self.evaluation_runs.pop(run_id))
        by_example: dict[str, list[Trajectory]] = {}
        for generation, result in enumerate(results):
            scores = dict(result.evaluation_results)[self.run_config.reward_function.name]
            items = {item.id: item for item in result.eval_input.eval_input_items}
            for score in scores.eval_output_items:
                episode = self._episode(items[score.id].trajectory)
                if len(episode) >= self.trajectory_builder_config.min_episode_length:
                    reward = await self.compute_reward(score)
                    by_example.setdefault(score.id, []).append(
                        Trajectory(episode=episode, reward=reward, metadata={"id": score.id, "generation": generation})
                    )
        return TrajectoryCollection(trajectories=list(by_example.values()), run_id=run_id)

    def log_progress(self, run_id: str, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        with Path(output_dir or ".", f"my_builder_{run_id}.jsonl").open("a") as file:
            file.write(json.dumps(metrics) + "\n")

    def _episode(self, steps) -> list[EpisodeItem]:
        steps = [s for s in steps if s.function_ancestry.function_name in self.run_config.target_functions]
        starts = [s for s in steps if s.event_type == IntermediateStepType.LLM_START]
        ends = [s for s in steps if s.event_type == IntermediateStepType.LLM_END]
        if not starts:
            return []
        messages = [*starts[-1].data.input, ends[-1].data.payload["message"]]
        logprobs = iter([s.data.payload["logprobs"] for s in ends])
        return [
            EpisodeItem(
                role=EpisodeItemRole(m["role"]),
                content=m["content"] or "",
                logprobs=next(logprobs) if m["role"] == "assistant" else None,
            )
            for m in messages
            if self.trajectory_builder_config.include_tool_calls or m["role"] != "tool"
        ]
