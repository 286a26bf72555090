"""Play the validation dataset with a trajectory builder's `run_eval`."""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.finetuning import FinetuneRunConfig, RewardFunctionConfig
from nat.data_models.score import mean, score_problem
from nat.errors import ConfigError, EvaluationError
from nat.eval.comparison import AgainstFirst
from nat.eval.dataset import copies
from nat.eval.failures import remedy_of
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder
from nat.finetuning.metrics import commonest_answer, commonest_of
from nat.finetuning.run_log import RolloutsBegun, RolloutsPlayed, RunLog, current_run, utc_now
from nat.finetuning.trajectories import outcome
from nat.rollout.session import in_pass
from nat.runs.records import Phase, ValidationRecord, after_epoch
from nat.runs.rollouts import RolloutRecord, tally, usage_by_purpose
from nat.wire.json import without_surrogates

logger = logging.getLogger(__name__)

_NO_CALLS = (
    "No LLM call was seen in {} held-out rollouts {}, so their scores say nothing about the trained model: let the "
    "agent take its client from builder.get_llm, and turn off caches of answers."
)


async def play_held_out(builder: TrajectoryBuilder, epoch: int) -> dict[str, Any]:
    """Scores of the held-out examples, as `Trainer.run_validation_evaluation` describes them.

    Inside a run, rollouts and scores are recorded in its journal, whichever trainer runs, and an epoch is played once:
    a second call returns the recorded scores.

    Raises:
        ConfigError: there is no validation dataset.
        EvaluationError: the reward's evaluator is missing, or no example got a score.

    """
    training, run = builder.run_config, current_run()
    held_out = _validation_of(training.run_configuration)
    if run is not None and (known := run.journal.find(ValidationRecord, epoch)) is not None:
        logger.info("The held-out examples were played %s already; their scores are used again", after_epoch(epoch))
        return _metrics(known)
    began = monotonic()
    if run is not None:
        run.append(RolloutsBegun(Phase.VALIDATION, run.num_rollouts(Phase.VALIDATION)))
        if epoch > 0 and not run.first_answers and run.journal.kept(Phase.VALIDATION, 0):
            await _played(builder, held_out, run, 0)  # what these answers are compared with, after a resume
    output = await _played(builder, held_out, run, epoch)
    records = held_out_records(output, training.reward_function)
    if run is not None:
        run.append(RolloutsPlayed(Phase.VALIDATION, epoch, records))
    failures = list(tally(records).failures)
    if all(record.reward is None for record in records):
        counts = "; ".join(map(str, failures))
        message = f"validation: none of {len(records)} held-out examples got a score: {counts}"
        raise EvaluationError(message, hint=remedy_of(failures[0].cause))
    items = output.eval_input.eval_input_items
    repeated = copies(items)
    expected = (item.expected_output_obj for item in items if item.example not in repeated)
    validation = ValidationRecord(
        epoch=epoch,
        timestamp=utc_now(),
        scores=without_surrogates(scores_by_example(records)),
        copies=without_surrogates(repeated),
        commonest=commonest_answer(records),
        expected=commonest_of((str(answer), None) for answer in expected if answer not in (None, "")),
        num_rollouts=len(records),
        failures=failures,
        seconds=monotonic() - began,
        usage=usage_by_purpose(records),
    )
    if run is not None:
        run.append(validation)
        if not run.first_answers:  # else later answers are compared with these
            run.journal.forget_kept(Phase.VALIDATION, 0)
        if all(record.num_calls == 0 for record in records):
            run.warn_once(_NO_CALLS.format(len(records), after_epoch(epoch)), "held_out_without_calls")
    return _metrics(validation)


async def _played(
    builder: TrajectoryBuilder, held_out: FinetuneRunConfig, run: RunLog | None, epoch: int
) -> EvaluationRunOutput:
    """One pass over the held-out examples; what an earlier process has finished of it is not played again."""
    training, changes = builder.run_config, dict[str, Any](held_out=True, comparison=None)
    if run is not None:
        keeper = changes["keeper"] = run.keeper(Phase.VALIDATION, epoch)
        changes["comparison"] = AgainstFirst(run.first_answers, before_training=epoch == 0)
        if run.journal.find(ValidationRecord, epoch) is not None:  # other weights must not answer what is missing
            changes["choose"] = keeper.items.intersection
    builder.run_config = training.model_copy(update={"run_configuration": held_out})
    try:
        with in_pass(**changes):
            return await builder.run_eval()
    finally:
        builder.run_config = training


def scores_by_example(records: Sequence[RolloutRecord]) -> dict[str, float | None]:
    """The mean of each example's rollouts that have a score; None if none has one."""
    rewards: dict[str, list[float]] = {record.example_id: [] for record in records}
    for record in records:
        if record.reward is not None:
            rewards[record.example_id].append(record.reward)
    return {example: mean(values) if values else None for example, values in rewards.items()}


def held_out_records(output: EvaluationRunOutput, reward: RewardFunctionConfig | None) -> list[RolloutRecord]:
    """One record for each rollout of a held-out example, with its score or why there is none."""
    repetitions, found = Counter[str](), list[RolloutRecord]()
    for item, score, facts in outcome.played(output, reward):
        if score is None or score_problem(score.score):
            lost = {} if score is None else outcome.no_score(score)
            own = facts | lost | {"reward": None if reward is None else reward.failed_score}
        else:
            own = facts | {"reward": float(score.score), "reasoning": score.reasoning, "relative": score.relative}
        record = outcome.recorded(item, repetitions[item.example], **own)
        found.append(record.model_copy(update={"example_id": item.example}))
        repetitions[item.example] += 1
    return found


def _validation_of(given: FinetuneRunConfig | None) -> FinetuneRunConfig:
    """The run's options with the validation's dataset and config file; overrides apply to the training's file only."""
    if given is None or given.validation_dataset is None:
        raise ConfigError(
            ["finetuning.run_configuration.validation_dataset: not set, so there is nothing to validate on"],
            hint="give `--validation_dataset`",
        )
    changes: dict[str, Any] = {"dataset": given.validation_dataset}
    if given.validation_config_file is not None:
        changes |= {"config_file": Path(given.validation_config_file), "override": ()}
    return given.model_copy(update=changes)


def _metrics(validation: ValidationRecord) -> dict[str, Any]:
    return {
        **validation.statistics,
        "scores": validation.scores,
        "epoch": validation.epoch,
        "dataset_type": "validation",
    }
