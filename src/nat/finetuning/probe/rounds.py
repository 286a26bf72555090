"""Play some of a probe's examples as the first epoch would, and score the outputs again."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from statistics import fmean
from typing import Self

from nat.builder.workflow_builder import WorkflowBuilder
from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.finetuning import Trajectory
from nat.errors import ANY_FAILURE
from nat.eval.comparison import SidePasses, comparing
from nat.eval.evaluate import score_items
from nat.finetuning import guards
from nat.finetuning.diagnosis.facts import ReferenceScores
from nat.finetuning.events import Observer, RolloutsBegun, StepBegun
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder, abandoned_on_error
from nat.finetuning.run_context import Stopwatch
from nat.finetuning.trajectories.groups import records_of
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilder
from nat.finetuning.workflow_sessions import observed_rollouts
from nat.rollout.server_watch import check_llm_servers, watched_servers
from nat.rollout.session import WorkflowSession, in_pass, using_session
from nat.runs.records import Phase
from nat.runs.rollouts import RolloutRecord

logger = logging.getLogger(__name__)

RUN_ID = "probe"
_META = {"epoch": 0, "run_id": RUN_ID}
Scores = Mapping[tuple[str, int], list[float]]


@dataclass(frozen=True)
class PlayedExamples:
    """The rollouts of one round, or of all rounds so far."""

    examples: list[EvalInputItem]
    groups: list[list[Trajectory]]
    records: list[RolloutRecord]
    scores_EGK: list[list[list[float]]]
    """All scores of each output of each example, the reward first."""
    seconds: float
    """Of the rollouts, without what was scored again."""

    def __add__(self, newer: Self) -> Self:
        return replace(self, **{name: value + vars(newer)[name] for name, value in vars(self).items()})


@dataclass(frozen=True)
class Player:
    """Plays examples with what is open."""

    trajectories: TrajectoryBuilder
    builder: WorkflowBuilder
    new_session: Callable[[], WorkflowSession]
    """Each round has its own, so that its passes have the seeds of the first epoch."""
    observe: Observer

    async def round(
        self, examples: list[EvalInputItem], *, rollouts: int, rescores: int, patience: float
    ) -> PlayedExamples | None:
        """Play these examples, `rollouts` in all, and score each output again, `rescores` times.

        None if the rollouts did not end in `patience` seconds. Second scores that did not end in time are left out.
        """
        session, limit = self.new_session(), patience if isfinite(patience) else None
        self.observe(RolloutsBegun(Phase.TRAIN, rollouts))
        try:
            with using_session(session), observed_rollouts(session, self.observe):
                async with asyncio.timeout(limit), watched_servers(self.builder):
                    played, passes = await _play(self.trajectories, examples)
        except TimeoutError:
            return None
        if any(record.left_out is not None for record in played.records):
            await check_llm_servers(self.builder)
        scores = {
            (record.example_id, record.generation): [record.reward]
            for record in played.records
            if record.left_out is None and record.reward is not None
        }
        if rescores and passes:
            self.observe(StepBegun(f"scoring the answers again, to measure the noise of the score ({rescores} times)"))
            with suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    for _ in range(rescores):
                        await self._score_again(scores, passes, session)
        by_example: dict[str, list[list[float]]] = {}
        for (example, _), found in scores.items():
            by_example.setdefault(example, []).append(found)
        return replace(played, scores_EGK=list(by_example.values()))

    async def _score_again(
        self, scores: Scores, passes: Sequence[EvaluationRunOutput], session: WorkflowSession
    ) -> None:
        """Add a score to those of each output that has one, by example and generation."""
        with comparing(SidePasses(len(passes))):
            async with asyncio.TaskGroup() as tasks:
                scored = [
                    tasks.create_task(
                        _rewards([i for i in items if (str(i.id), generation) in scores], self.trajectories, session)
                    )
                    for generation, items in enumerate(output.eval_input.eval_input_items for output in passes)
                ]
        for generation, task in enumerate(scored):
            for example, reward in task.result().items():
                scores[example, generation].append(reward)

    async def reference_scores(self, examples: Sequence[EvalInputItem]) -> ReferenceScores | None:
        """Scores of the expected answers, for their own examples and for others; None if there are no such scores."""
        known = [item for item in examples if item.expected_output_obj is not None]
        others = [*known[1:], *known[:1]]
        pairs = [
            (item, other.expected_output_obj)
            for item, other in zip(known, others, strict=True)
            if item.expected_output_obj != other.expected_output_obj
        ]
        right = [item.copy_with_updates(output_obj=item.expected_output_obj) for item, _ in pairs]
        wrong = [item.copy_with_updates(output_obj=other) for item, other in pairs]
        session = self.new_session()
        with comparing(SidePasses(2)):
            found = await asyncio.gather(*(_rewards(items, self.trajectories, session) for items in (right, wrong)))
        scores = [list(own.values()) for own in found]
        return ReferenceScores(right=fmean(scores[0]), wrong=fmean(scores[1])) if all(scores) else None


async def _play(
    trajectories: TrajectoryBuilder, examples: list[EvalInputItem]
) -> tuple[PlayedExamples, Sequence[EvaluationRunOutput]]:
    """The rollouts of the first epoch, and the outputs of an `EvalTrajectoryBuilder`, one pass for each generation."""
    watch, ids = Stopwatch(), {str(item.id) for item in examples}
    async with abandoned_on_error(trajectories, RUN_ID):
        with in_pass(choose=lambda _every: ids):
            await trajectories.start_run(RUN_ID, meta=_META)
        passes = list(trajectories.evaluation_runs[RUN_ID]) if isinstance(trajectories, EvalTrajectoryBuilder) else []
        collected = await trajectories.finalize(RUN_ID, meta=_META)
    guards.check_rewards(collected)
    records = list(trajectories.rollouts(RUN_ID) or records_of(collected))
    return PlayedExamples(examples, collected.trajectories, records, [], watch.total), [
        task.result() for task in passes
    ]


async def _rewards(
    items: list[EvalInputItem], trajectories: TrajectoryBuilder, session: WorkflowSession
) -> dict[str, float]:
    """The rewards of outputs by example; what cannot be scored has none."""
    reward = trajectories.run_config.reward_function
    assert reward is not None, "set before the run"
    evaluator = session.builder.get_evaluator(reward.name)
    output = await score_items(reward.name, evaluator, items, session.config.eval.general)
    found = {}
    for score in output.eval_output_items:
        if score.score is not None:
            try:
                found[str(score.id)] = await trajectories.compute_reward(score, dict(_META))
            except ANY_FAILURE as error:  # the boundary of one score: the reward is user code
                logger.debug("compute_reward failed", exc_info=error)
    return found
