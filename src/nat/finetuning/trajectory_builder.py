"""The generic trajectory builder: `num_generations` passes over the epoch's examples, played side by side.

Plug-ins register thin subclasses of the class and of its configuration.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem
from nat.data_models.finetuning import FinetuneConfig, Trajectory, TrajectoryBuilderConfig, TrajectoryCollection
from nat.errors import ANY_FAILURE, EvaluationError, describe_error, traceback_of
from nat.eval.comparison import SidePasses
from nat.finetuning.example_choice import Spread, by_spread, in_turn, observed
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder, abandoned_on_error
from nat.finetuning.progress import append_progress
from nat.finetuning.trajectories import outcome
from nat.finetuning.trajectories.calls import Target
from nat.finetuning.trajectories.credit import credit_warnings
from nat.finetuning.trajectories.groups import example_id, group_by_example, has_signal
from nat.rollout.session import Choose, current_pass, in_pass
from nat.runs.journal import Journal
from nat.runs.records import Phase
from nat.runs.rollouts import LeftOutCause, RolloutRecord

logger = logging.getLogger(__name__)

_TRAINABLE = {None, *(str(cause) for cause in LeftOutCause if cause.by_choice), str(LeftOutCause.TOO_STALE)}
"""Why a rollout that has a trajectory was left out."""

ExampleChoice = Literal["in_turn", "by_spread"]


class EvalTrajectoryBuilderConfig(TrajectoryBuilderConfig):
    """Options of every builder that plays the dataset several times."""

    num_generations: int = Field(default=2, ge=1)
    """Rollouts of each example per epoch; training compares their rewards, so 1 gives no signal."""
    examples_per_epoch: int | None = Field(default=None, ge=1)
    """Examples that an epoch plays; null plays the whole dataset."""
    choose_examples: ExampleChoice = "in_turn"
    """Which examples an epoch plays, if not all: `in_turn`, the next ones of shuffled passes over the dataset;
    `by_spread`, rather those whose rollouts had different rewards, and those not seen for long."""
    max_refills: int = Field(default=0, ge=0, le=10)
    """How often an epoch plays further examples in place of those whose rollouts all had the same reward."""

    @model_validator(mode="after")
    def _choice_needs_a_number(self) -> Self:
        chosen = self.model_fields_set & {"choose_examples", "max_refills"}
        if self.examples_per_epoch is None and chosen:
            names = " and ".join(sorted(chosen))
            raise ValueError(f"{names}: without examples_per_epoch an epoch plays all examples; set it too")
        return self

    def rollouts_of(self, num_examples: int) -> int:
        """Rollouts of an epoch, without refills, of a dataset with so many examples."""
        return self.num_generations * min(num_examples, self.examples_per_epoch or num_examples)

    @property
    def compares_examples(self) -> bool:
        """True if all rollouts of an epoch are one group, whichever example they are of."""
        return False


class EvalTrajectoryBuilder(TrajectoryBuilder):
    """One trajectory per scored rollout, grouped by example; other rollouts are recorded with the cause."""

    trajectory_builder_config: EvalTrajectoryBuilderConfig
    reward_seconds = 60.0
    """Seconds that `compute_reward` may take for one rollout; after that the rollout has no reward."""

    def __init__(self, trajectory_builder_config: EvalTrajectoryBuilderConfig) -> None:
        super().__init__(trajectory_builder_config)
        self.evaluation_runs: dict[str, list[asyncio.Task[EvaluationRunOutput]]] = {}
        self._known: dict[str, Spread] = {}
        self._rollouts: dict[str, list[RolloutRecord]] = {}
        self.passes_per_epoch = self.num_generations * (1 + trajectory_builder_config.max_refills)

    def go_on_from(self, journal: Journal) -> None:
        self._known = {}
        by_spread = self.trajectory_builder_config.choose_examples == "by_spread"
        for epoch in range(journal.num_epochs() if by_spread else 0):
            rewards: dict[str, list[float]] = {}
            for found in journal.outcomes(Phase.TRAIN, epoch):
                if found.reward is not None and found.left_out in _TRAINABLE:
                    rewards.setdefault(found.example_id, []).append(found.reward)
            self._known = observed(self._known, rewards, epoch)

    @property
    def num_generations(self) -> int:
        return self.trajectory_builder_config.num_generations

    async def start_run(self, run_id: str, meta: dict[str, Any] | None = None) -> None:
        """Launch the passes; they share the limit of concurrent rollouts.

        Raises:
            ValueError: passes under this id are going on.

        """
        if run_id in self.evaluation_runs:
            raise ValueError(f"Run {run_id} is already in progress.")
        logger.info("Starting %d evaluation runs for run_id: %s", self.num_generations, run_id)
        wanted = self.trajectory_builder_config.examples_per_epoch
        self._play(run_id, None if wanted is None else partial(self._chosen, _epoch_of(meta), wanted, ()))

    def _play(self, run_id: str, choose: Choose | None) -> None:
        """Start one pass per generation over the chosen examples, or over those that the context chooses."""
        with in_pass(choose=choose or current_pass().choose, comparison=SidePasses(self.num_generations)):
            self.evaluation_runs[run_id] = [
                asyncio.create_task(self.run_eval(), name=f"{run_id} generation {generation}")
                for generation in range(self.num_generations)
            ]

    def _chosen(self, epoch: int, count: int, without: Collection[str], ids: Sequence[str]) -> Sequence[str]:
        """Give `count` examples for an epoch, other ones than those that it has played."""
        config, seed = self.trajectory_builder_config, self.run_config.seed
        if config.choose_examples == "by_spread":
            return by_spread(ids, count, self._known, seed=seed, epoch=epoch, without=without)
        begin = epoch * (config.examples_per_epoch or 0)
        return in_turn(ids, len(without) + count, begin=begin, seed=seed)[len(without) :]

    async def finalize(self, run_id: str, meta: dict[str, Any] | None = None) -> TrajectoryCollection:
        """Wait for the passes and build a trajectory of each scored rollout.

        Raises:
            ValueError: no passes were started under this id.
            EvaluationError: the reward's evaluator is missing or not named.

        """
        if run_id not in self.evaluation_runs:
            raise ValueError(f"No evaluation runs found for run_id: {run_id}")
        metadata = {"run_id": run_id} | {key: value for key, value in (meta or {}).items() if key == "epoch"}
        epoch, refills = _epoch_of(meta), self.trajectory_builder_config.max_refills
        trajectories: list[Trajectory] = []
        self._rollouts[run_id] = []
        async with abandoned_on_error(self, run_id):
            trajectories += (latest := await self._played(run_id, metadata))
            while refills and (
                flat := sum(len(group_by_example(g)) for g in self._groups(latest) if not has_signal(g))
            ):
                played = {record.example_id for record in self._rollouts[run_id]}
                self._play(run_id, partial(self._chosen, epoch, flat, played))
                trajectories += (latest := await self._played(run_id, metadata))
                refills -= 1
        examples = group_by_example(trajectories)
        self._known = observed(self._known, {example_id(e[0]): [t.reward for t in e] for e in examples}, epoch)
        for text in credit_warnings(self.run_config.reward_function, trajectories):
            logger.warning("%s", text)
        logger.info("Built %d trajectories across %d examples for run_id: %s", len(trajectories), len(examples), run_id)
        return TrajectoryCollection(trajectories=self._groups(trajectories), run_id=run_id)

    def _groups(self, trajectories: list[Trajectory]) -> list[list[Trajectory]]:
        one = self.trajectory_builder_config.compares_examples and trajectories
        return [trajectories] if one else group_by_example(trajectories)

    async def _played(self, run_id: str, metadata: dict[str, Any]) -> list[Trajectory]:
        """The trajectories of the passes that are going on, when they are done."""
        outputs = await asyncio.gather(*self.evaluation_runs[run_id])
        self.run_config = self.run_config or FinetuneConfig()  # a unit test may leave `initialize` out
        del self.evaluation_runs[run_id]
        trajectories: list[Trajectory] = []
        for generation, output in enumerate(outputs):
            async for record, trajectory in self._outcomes(output, generation, metadata):
                self._rollouts[run_id].append(record)
                trajectories += [] if trajectory is None else [trajectory]
        return trajectories

    async def abandon(self, run_id: str) -> None:
        """Cancel the passes that are still running, and wait for their end."""
        tasks = self.evaluation_runs.pop(run_id, [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def rollouts(self, run_id: str) -> Sequence[RolloutRecord]:
        return self._rollouts.get(run_id, [])

    def log_progress(self, run_id: str, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Append a line to `trajectory_builder_<run_id>.jsonl`."""
        facts = {"num_generations": self.num_generations, **metrics}
        append_progress("trajectory_builder", run_id, facts, output_dir=output_dir)

    async def _outcomes(
        self, output: EvaluationRunOutput, generation: int, metadata: dict[str, Any]
    ) -> AsyncIterator[tuple[RolloutRecord, Trajectory | None]]:
        """The record of each item of one pass, and its trajectory if it can be trained on."""
        settings = self.run_config.reward_function
        target = Target(functions=self.run_config.target_functions, model=self.run_config.target_model)
        given: dict[str, Any] = {"generation": generation, "target": target, "credit": settings, "metadata": metadata}
        for item, score, facts in outcome.played(output, settings):
            trajectory: Trajectory | None = None
            if score is None:
                record = outcome.recorded(item, generation, target, **facts)
            else:
                record, trajectory = await self._rewarded(item, score, facts=facts, **given)
            if record.failed and settings is not None and (least := settings.failed_score) is not None:
                counts = EvalOutputItem(id=item.id, score=least, reasoning=None)
                facts |= {"error": record.error, "traceback": record.traceback}
                found, trajectory = outcome.scored(item, counts, least, facts=facts, **given)
                record = record if trajectory is None else found  # without a call, there is nothing to train
            yield record, trajectory

    async def _rewarded(
        self, item: EvalInputItem, score: EvalOutputItem, *, facts: outcome.Facts, **given: Any
    ) -> tuple[RolloutRecord, Trajectory | None]:
        """The outcome of a scored rollout, whose reward is user code."""
        deadline = asyncio.timeout(self.reward_seconds)
        try:
            async with deadline:
                reward = await self.compute_reward(score, given["metadata"])
        except EvaluationError as error:
            cause = outcome.no_score(str(error))
        except ANY_FAILURE as error:  # the boundary of one rollout
            late = f"it did not end within {self.reward_seconds:g} s" if deadline.expired() else None
            cause = outcome.no_score(f"compute_reward: {late or describe_error(error)}")
            cause["traceback"] = traceback_of(error)
        else:
            return outcome.scored(item, score, reward, facts=facts, **given)
        return outcome.recorded(item, given["generation"], given["target"], **facts | cause), None


def _epoch_of(meta: Mapping[str, Any] | None) -> int:
    """The epoch in a trainer's facts; 0 without one."""
    return int((meta or {}).get("epoch", 0))
