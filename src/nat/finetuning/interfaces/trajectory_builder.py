"""The interface of a trajectory builder, which turns rollouts of the workflow into training data."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from nat.data_models.evaluate_runtime import EvaluationRunConfig, EvaluationRunOutput
from nat.data_models.evaluator import EvalOutputItem
from nat.data_models.finetuning import FinetuneConfig, TrajectoryBuilderConfig, TrajectoryCollection
from nat.data_models.score import score_problem
from nat.errors import ANY_FAILURE, ConfigError, EvaluationError
from nat.eval.evaluate import EvaluationRun
from nat.finetuning.interfaces.trainer_adapter import check_ready
from nat.runs.journal import Journal
from nat.runs.rollouts import RolloutRecord

logger = logging.getLogger(__name__)


class TrajectoryBuilder(ABC):
    """Abstract: plays the workflow on the dataset and returns trajectories with rewards, grouped by example."""

    passes_per_epoch: int = 2**10
    """At most so many passes over the dataset has an epoch; the seeds of each epoch begin that much later."""

    def __init__(self, trajectory_builder_config: TrajectoryBuilderConfig) -> None:
        self.trajectory_builder_config = trajectory_builder_config
        self.run_config: FinetuneConfig = None  # type: ignore[assignment] # the guide's signature; set by `initialize`

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Called once, before anything else."""
        self.run_config = run_config
        self.trajectory_builder_config.reward = run_config.reward_function

    async def run_eval(self) -> EvaluationRunOutput:
        """One pass over the dataset: rollouts with their steps, and scores.

        Inside a finetuning run the pass uses the open workflow and shares its limit of concurrent rollouts with all
        other passes; nothing is built again.
        """
        check_ready(self, self.run_config)
        given = self.run_config.run_configuration
        if given is None or given.config_file is None:
            raise ConfigError(
                ["finetuning.run_configuration.config_file: not set, so there is no workflow to run"],
                hint="start through `nat finetune`, or set it to the YAML",
            )
        config = EvaluationRunConfig(
            config_file=given.config_file,
            dataset=given.dataset,
            result_json_path=given.result_json_path,
            override=given.override,
            endpoint=given.endpoint,
            endpoint_timeout=given.endpoint_timeout,
            write_output=False,
        )
        return await EvaluationRun(config).run_and_evaluate()

    @abstractmethod
    async def start_run(self, run_id: str, meta: dict[str, Any] | None = None) -> None:
        """Start to collect trajectories under this id."""
        raise NotImplementedError

    @abstractmethod
    async def finalize(self, run_id: str, meta: dict[str, Any] | None = None) -> TrajectoryCollection:
        """Wait for the rollouts of `start_run` and return their trajectories."""
        raise NotImplementedError

    async def compute_reward(self, output_item: EvalOutputItem, meta: dict[str, Any] | None = None) -> float:
        """The evaluator's score; 0.0 without one, so call it only for scored items.

        Raises:
            EvaluationError: the score is not a finite number.

        """
        if output_item.score is None:
            return 0.0
        if problem := score_problem(output_item.score):
            raise EvaluationError(problem)
        return float(output_item.score)

    @abstractmethod
    def log_progress(self, run_id: str, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Save metrics of the collection in a place of the builder's choice."""
        raise NotImplementedError

    async def abandon(self, run_id: str) -> None:  # noqa: B027 - optional
        """Called when a run stops between `start_run` and the end of `finalize`: cancel what is still running."""

    def go_on_from(self, journal: Journal) -> None:  # noqa: B027 - optional
        """Called after `initialize`: learn what a builder remembers of the epochs that the run has finished."""

    def rollouts(self, run_id: str) -> Sequence[RolloutRecord]:
        """All rollouts of the last `finalize`, including those left out; empty if the builder keeps no records."""
        return ()


@asynccontextmanager
async def abandoned_on_error(builder: TrajectoryBuilder, run_id: str) -> AsyncIterator[None]:
    """Abandon the run if the block fails; an error in `abandon` is logged and does not hide the cause."""
    try:
        yield
    except BaseException:
        try:
            await builder.abandon(run_id)
        except ANY_FAILURE:
            logger.exception("%s.abandon failed too", type(builder).__name__)
        raise
