"""The builder of preference pairs: one pass over the dataset, and all pairs of its candidates."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import AliasChoices, Field

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.finetuning import (
    DPOItem,
    FinetuneConfig,
    Trajectory,
    TrajectoryBuilderConfig,
    TrajectoryCollection,
)
from nat.data_models.intermediate_step import IntermediateStepType
from nat.data_models.score import score_problem
from nat.errors import NoPreferencePairs, did_you_mean
from nat.eval.failures import remedy_of
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder, abandoned_on_error
from nat.finetuning.preferences.candidates import CandidateStep, PreferencePair, Skipped, find_candidates, pair_turn
from nat.finetuning.progress import append_progress
from nat.finetuning.run_log import current_run
from nat.finetuning.trajectories import outcome
from nat.finetuning.trajectories.groups import group_by_example
from nat.preferences.pairs import PairRule, SkipCause
from nat.registry.decorators import from_config, register_trajectory_builder
from nat.runs.rollouts import LeftOutCause, RolloutRecord, RolloutTally, tally

__all__ = ["CandidateStep", "DPOTrajectoryBuilder", "DPOTrajectoryBuilderConfig", "PreferencePair"]

logger = logging.getLogger(__name__)

PROGRESS_FILE = "dpo_trajectory_builder"
_OF_A_JOB = {SkipCause.NO_PAIR, SkipCause.DUPLICATE, SkipCause.NOT_DRAWN}
"""Of pairs that were collected; the builder counts all others."""
_ORDINARY = {SkipCause.NOT_TARGET, SkipCause.EQUAL_RESPONSES, SkipCause.TIE, SkipCause.SCORE_DIFF, SkipCause.TURN_CAP}
"""Likely no mistakes: scorers tie, models repeat themselves, and a limit is a choice."""


class DPOTrajectoryBuilderConfig(TrajectoryBuilderConfig, name="dpo_traj_builder"):
    """Pairs of a better and a worse answer, from the candidates that the workflow pushes as TTC_END steps."""

    gives = "pairs"

    ttc_step_name: str = Field(
        default="dpo_candidate_move", validation_alias=AliasChoices("ttc_step_name", "custom_step_name")
    )
    """Name of the TTC_END steps that are candidates; the toolkit's example calls it `custom_step_name`."""
    exhaustive_pairs: bool = True
    """Pair every two candidates of a turn; false pairs the best with the worst only."""
    min_score_diff: float = Field(default=0.0, ge=0.0)
    """Least difference of the scores of a pair. Equal scores make no pair, not even at 0."""
    max_pairs_per_turn: int | None = Field(default=None, ge=1)
    """Pairs to keep of a turn, those with the largest differences; null keeps all."""
    reward_from_score_diff: bool = True
    """The reward of a pair is the difference of its scores; with false, the score of the better answer."""
    require_multiple_candidates: bool = True
    """Warn of turns with a single candidate and count them as skipped; set to false where a workflow means them."""

    def rollouts_of(self, num_examples: int) -> int:
        return num_examples


@dataclass
class Collected:
    """The pairs of one pass, and what became of everything else."""

    records: list[RolloutRecord] = field(default_factory=list)
    """One for each rollout."""
    candidates: list[CandidateStep] = field(default_factory=list)
    pairs: list[PreferencePair] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def num_turns(self) -> int:
        return len({(each.example_id, each.turn_id) for each in self.candidates})


class DPOTrajectoryBuilder(TrajectoryBuilder):
    """One trajectory per pair, grouped by example.

    It needs no evaluator; with a reward function, the records of the rollouts have its scores.
    """

    trajectory_builder_config: DPOTrajectoryBuilderConfig
    passes_per_epoch = 1

    def __init__(self, trajectory_builder_config: DPOTrajectoryBuilderConfig) -> None:
        super().__init__(trajectory_builder_config)
        self.evaluation_runs: dict[str, asyncio.Task[EvaluationRunOutput]] = {}
        self._records: dict[str, Sequence[RolloutRecord]] = {}

    async def start_run(self, run_id: str, meta: dict[str, Any] | None = None) -> None:
        """Launch one pass over the dataset.

        Raises:
            ValueError: a pass under this id is going on.

        """
        if run_id in self.evaluation_runs:
            raise ValueError(f"Run {run_id} is already in progress.")
        logger.info("Starting an evaluation run for run_id: %s", run_id)
        self.evaluation_runs[run_id] = asyncio.create_task(self.run_eval(), name=f"{run_id} candidates")

    async def finalize(self, run_id: str, meta: dict[str, Any] | None = None) -> TrajectoryCollection:
        """Wait for the pass and pair its candidates.

        Raises:
            ValueError: no pass was started under this id.
            NoPreferencePairs: there is no pair; the message counts the causes.

        """
        if run_id not in self.evaluation_runs:
            raise ValueError(f"No evaluation run found for run_id: {run_id}")
        config, run = self.trajectory_builder_config, current_run()
        async with abandoned_on_error(self, run_id):
            output = await self.evaluation_runs[run_id]
        del self.evaluation_runs[run_id]
        collected = collect(output, config, self.run_config or FinetuneConfig())  # a unit test may leave it out
        self._records[run_id] = collected.records
        if run is not None:
            self.log_progress(run_id, metrics_of(collected), str(run.journal.run_dir))
        if not collected.pairs:
            raise _no_pairs(output, collected, config)
        for cause, text in _counted(collected.skipped).items():
            logger.log(logging.INFO if cause in _ORDINARY else logging.WARNING, "Preference pairs: %s", text)
        if (counts := tally(collected.records)).num_failed:
            logger.warning("Preference pairs: %s", _failed_rollouts(counts))
        facts = {"run_id": run_id} | {key: value for key, value in (meta or {}).items() if key == "epoch"}
        by_diff = config.reward_from_score_diff
        groups = group_by_example(trajectory_of(each, facts, by_diff=by_diff) for each in collected.pairs)
        text = "Built %d preference pairs from %d candidates in %d turns of %d examples for run_id: %s"
        sizes = len(collected.pairs), len(collected.candidates), collected.num_turns, len(groups)
        logger.info(text, *sizes, run_id)
        return TrajectoryCollection(trajectories=groups, run_id=run_id)

    async def abandon(self, run_id: str) -> None:
        """Cancel the pass if it is still running, and forget it."""
        task = self.evaluation_runs.pop(run_id, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def rollouts(self, run_id: str) -> Sequence[RolloutRecord]:
        return self._records.get(run_id, ())

    def log_progress(self, run_id: str, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Append a line to `dpo_trajectory_builder_<run_id>.jsonl`."""
        facts = {"config": self.trajectory_builder_config.model_dump(exclude={"type", "reward"}), **metrics}
        append_progress(PROGRESS_FILE, run_id, facts, output_dir=output_dir)


def collect(output: EvaluationRunOutput, config: DPOTrajectoryBuilderConfig, run: FinetuneConfig) -> Collected:
    """The pairs of a pass. Pure.

    The candidates of a rollout that failed are not used: it may have ended before a turn was complete.
    """
    collected, known = Collected(), outcome.facts_of(output, run.reward_function)
    result = None if run.reward_function is None else output.results_of(run.reward_function.name)
    scores = {} if result is None else {str(score.id): score.score for score in result.eval_output_items}
    rule = PairRule(
        config.min_score_diff, "all" if config.exhaustive_pairs else "best_worst", config.max_pairs_per_turn
    )
    for item in output.eval_input.eval_input_items:
        example, facts = str(item.id), known[str(item.id)]
        if "left_out" not in facts:
            found, skipped = find_candidates(example, item.trajectory, config.ttc_step_name, run.target_functions)
            pairs, turns = list[PreferencePair](), dict[str, list[CandidateStep]]()
            for candidate in found:
                turns.setdefault(candidate.turn_id, []).append(candidate)
            for turn in turns.values():
                own, unpaired = pair_turn(turn, rule)
                pairs += own
                meant = len(turn) == 1 and not config.require_multiple_candidates
                skipped += [] if meant else unpaired
            collected.candidates += found
            collected.pairs += pairs
            collected.skipped += skipped
            score: Any = scores.get(example)
            facts |= {} if score_problem(score) else {"reward": float(score)}
            if not pairs:
                facts |= {"left_out": LeftOutCause.NO_PAIR, "error": next(iter(_counted(skipped).values()), None)}
        collected.records.append(outcome.recorded(item, 0, **facts))
    return collected


def _counted(skipped: Iterable[Skipped]) -> dict[SkipCause, str]:
    """The number of each cause and its first place, in words, the most frequent first."""
    counts, first = Counter[SkipCause](), dict[SkipCause, str]()
    for cause, where in skipped:
        counts[cause] += 1
        first.setdefault(cause, where)
    return {cause: f"{count} x {cause}; first: {first[cause]}" for cause, count in counts.most_common()}


def metrics_of(collected: Collected) -> dict[str, int]:
    """What was found, and what was skipped for each cause, 0 included."""
    skipped = Counter(each.cause for each in collected.skipped)
    return {
        "total_examples": len({record.example_id for record in collected.records}),
        "total_turns": collected.num_turns,
        "total_candidates": len(collected.candidates),
        "total_pairs": len(collected.pairs),
        "total_trajectories": len(collected.pairs),
        "failed_rollouts": tally(collected.records).num_failed,
        **{f"skipped_{cause.name.lower()}": skipped[cause] for cause in SkipCause if cause not in _OF_A_JOB},
    }


def trajectory_of(pair: PreferencePair, facts: dict[str, Any], *, by_diff: bool) -> Trajectory:
    """A trajectory with one DPOItem; `facts` (run id, epoch) are added to its metadata."""
    texts = {"prompt", "chosen_response", "rejected_response"}
    item = DPOItem.model_validate({name: getattr(pair, name) for name in texts})
    own = {name: value for name, value in vars(pair).items() if name not in {*texts, "metadata"}}
    return Trajectory(
        episode=[item],
        reward=pair.score_diff if by_diff else pair.chosen_score,
        metadata={**facts, "id": pair.example_id, "dpo_type": "preference_pair", **own, **pair.metadata},
    )


def _no_pairs(
    output: EvaluationRunOutput, collected: Collected, config: DPOTrajectoryBuilderConfig
) -> NoPreferencePairs:
    """The error of a pass without pairs: what was seen, counted by cause, and a remedy for the likeliest."""
    counts, skipped = tally(collected.records), _counted(collected.skipped)
    played = counts.num_rollouts - counts.num_failed
    seen = f"{len(collected.candidates)} candidates in {collected.num_turns} turns of {played} rollouts"
    lines = [f"no preference pair to train on: {seen}", *(f"  {each}" for each in skipped.values())]
    lines += [f"  {_failed_rollouts(counts)}"] if counts.num_failed else []
    if counts.num_rollouts == 0:
        hint = "The dataset has no rows."
    elif played == 0:
        hint = remedy_of(counts.failures[0].cause)
    elif skipped:
        hint = next(iter(skipped)).remedy
    else:
        name, steps = config.ttc_step_name, (s for i in output.eval_input.eval_input_items for s in i.trajectory)
        others = Counter(str(step.name) for step in steps if step.event_type is IntermediateStepType.TTC_END)
        known = ", ".join(f"{other} ({count})" for other, count in others.most_common()) or "none"
        lines.append(f"  no step is named '{name}' (ttc_step_name); TTC_END steps seen: {known}")
        hint = f"Set ttc_step_name to the name of your candidates.{did_you_mean(name, others)}"
        if not others:
            step = f"IntermediateStepPayload(event_type=TTC_END, name='{name}', data=TTCEventData(…))"
            hint = f"Push each candidate as {step}, with turn_id, score, input=prompt and output=response."
    return NoPreferencePairs("\n".join(lines), hint=hint)


def _failed_rollouts(counts: RolloutTally) -> str:
    """How many rollouts failed, by cause."""
    causes = [str(each) for each in counts.failures if LeftOutCause(each.cause).failure]
    return f"{counts.num_failed} of {counts.num_rollouts} rollouts failed: {'; '.join(causes)}"


register_trajectory_builder(config_type=DPOTrajectoryBuilderConfig)(from_config(DPOTrajectoryBuilder))
