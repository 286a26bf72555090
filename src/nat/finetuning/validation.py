"""Validation with the current weights, once per epoch, and the rule for early stopping."""

from collections.abc import Sequence
from typing import Any

from nat.data_models.finetuning import EarlyStoppingConfig, GuardsConfig
from nat.data_models.score import score_problem
from nat.errors import EvaluationError
from nat.finetuning.alarms import held_out_warning
from nat.finetuning.best_model import keep_if_best
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.run_context import RunContext
from nat.runs.folder import files_due
from nat.runs.records import BestMeasure, ValidationRecord, after_epoch

WHOLE_DATASET = "all examples"
"""Replaces the example ids where a plug-in's trainer reports only the mean."""


async def validate(trainer: Trainer, epoch: int, run: RunContext) -> ValidationRecord:
    """The held-out scores after `epoch` epochs, journaled; played again only if they are not in the journal yet.

    Raises:
        EvaluationError: the trainer's own validation reports an error instead of scores.

    """
    known = run.journal.validation(epoch)
    if known is None:
        metrics = await trainer.run_validation_evaluation(epoch, run.run_id)
        if metrics.get("error"):
            raise EvaluationError(f"validation {after_epoch(epoch)} failed: {metrics['error']}")
        known = run.journal.validation(epoch) or _keep(run, epoch, _mean(metrics))
        await keep_if_best(
            trainer.trainer_adapter, run, epoch=epoch, score=known.avg_reward, measure=BestMeasure.HELD_OUT
        )
        _warn_of_a_fall(trainer, run)
    if files_due(epoch):
        run.write_files()
    return known


def _warn_of_a_fall(trainer: Trainer, run: RunContext) -> None:
    journal, config = run.journal, trainer.run_config
    limits = GuardsConfig() if config is None else config.guards  # a plug-in's `initialize` may not set it
    text = held_out_warning(journal.validations(), journal.epochs, limits)
    if text is not None:
        run.warn(text)


def _mean(metrics: dict[str, Any]) -> float:
    if problem := score_problem(metrics.get("avg_reward"), "avg_reward"):
        raise EvaluationError(f"validation: {problem}", hint="`run_validation_evaluation` must return a number")
    return float(metrics["avg_reward"])


def _keep(run: RunContext, epoch: int, avg_reward: float) -> ValidationRecord:
    record = ValidationRecord(epoch=epoch, timestamp=run.now(), scores={WHOLE_DATASET: avg_reward})
    run.record_validation(record)
    return record


def plateaued(scores: Sequence[float], config: EarlyStoppingConfig) -> bool:
    """True if none of the last `patience` scores beats the best one before them by more than `min_delta`."""
    if len(scores) <= config.patience:
        return False
    best_before = max(scores[: -config.patience])
    return max(scores[-config.patience :]) - best_before <= config.min_delta
