"""Validate with the current weights, at most once per epoch, whatever trainer runs."""

from typing import Any

from nat.data_models.finetuning import GuardsConfig
from nat.data_models.score import problem_of
from nat.errors import EvaluationError
from nat.finetuning.best import keep_if_best
from nat.finetuning.held_out_fall import held_out_warning
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.scope import RunScope
from nat.runs.epochs import when
from nat.runs.files import files_due
from nat.runs.records import BestMeasure, ValidationRecord

WHOLE_DATASET = "all examples"
"""Stands for the example ids where a trainer of others gives the mean alone."""


async def validate(trainer: Trainer, epoch: int, scope: RunScope) -> ValidationRecord:
    """The held-out scores after `epoch` epochs, journaled; played again only if they are not in the journal yet.

    Raises:
        EvaluationError: the trainer's own validation reports an error instead of scores.

    """
    known = scope.journal.validation(epoch)
    if known is None:
        metrics = await trainer.run_validation_evaluation(epoch, scope.run_id)
        if metrics.get("error"):
            raise EvaluationError(f"validation {when(epoch)} failed: {metrics['error']}")
        known = scope.journal.validation(epoch) or _keep(scope, epoch, _mean(metrics))
        await keep_if_best(
            trainer.trainer_adapter, scope, epoch=epoch, score=known.avg_reward, measure=BestMeasure.HELD_OUT
        )
        _warn_of_a_fall(trainer, scope)
    if files_due(epoch):
        scope.write_files()
    return known


def _warn_of_a_fall(trainer: Trainer, scope: RunScope) -> None:
    journal, config = scope.journal, trainer.run_config
    limits = GuardsConfig() if config is None else config.guards  # a plug-in's own `initialize` may keep it elsewhere
    text = held_out_warning(journal.validations(), journal.epochs, limits)
    if text is not None:
        scope.warn(text)


def _mean(metrics: dict[str, Any]) -> float:
    if problem := problem_of(metrics.get("avg_reward"), "avg_reward"):
        raise EvaluationError(f"validation: {problem}", hint="`run_validation_evaluation` must return a number")
    return float(metrics["avg_reward"])


def _keep(scope: RunScope, epoch: int, avg_reward: float) -> ValidationRecord:
    record = ValidationRecord(epoch=epoch, timestamp=scope.now(), scores={WHOLE_DATASET: avg_reward})
    scope.journal.record_validation(record)
    scope.validation_finished(record)
    return record
