"""Validation with the current weights, once per epoch; the warning of a fall, and the rule for early stopping."""

from collections.abc import Callable, Sequence

from nat.data_models.finetuning import EarlyStoppingConfig, GuardsConfig
from nat.data_models.score import mean, score_problem
from nat.errors import EvaluationError
from nat.finetuning.best_model import keep_if_best
from nat.finetuning.diagnosis.catalogue import explanation_of
from nat.finetuning.diagnosis.conditions import held_out_differs
from nat.finetuning.diagnosis.gather import findings_of
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trainer_adapter import TrainsElsewhere
from nat.finetuning.run_log import RunLog
from nat.finetuning.verdict import compare
from nat.runs.folder import files_due, write_files
from nat.runs.records import (
    BestMeasure,
    EpochRecord,
    ValidationRecord,
    Verdict,
    after_epoch,
    epoch_number,
    held_out_means,
    same_examples,
)

WHOLE_DATASET = "all examples"
"""Replaces the example ids where a plug-in's trainer reports only the mean."""


def no_verdict(trainer: Trainer) -> str | None:
    """Why held-out scores of the trained model cannot be had; None if they can."""
    components = (trainer, trainer.trainer_adapter)
    reasons = (each.no_verdict() for each in components if isinstance(each, TrainsElsewhere))
    return next(filter(None, reasons), None)


async def validate(trainer: Trainer, epoch: int, run: RunLog, *, last: bool = False) -> ValidationRecord:
    """The held-out scores after `epoch` epochs, journaled; played again only if they are not in the journal yet.

    The diagnosis is left out if it is the `last` one of the run, whose summary has it.

    Raises:
        EvaluationError: the trainer's own validation reports an error instead of scores.

    """
    known = run.journal.find(ValidationRecord, epoch)
    if known is None:
        metrics = await trainer.run_validation_evaluation(epoch, run.run_id)
        if metrics.get("error"):
            raise EvaluationError(f"validation {after_epoch(epoch)} failed: {metrics['error']}")
        known = run.journal.find(ValidationRecord, epoch)
        if known is None:  # a plug-in's trainer has played them, and kept nothing
            if problem := score_problem(metrics.get("avg_reward"), "avg_reward"):
                hint = "`run_validation_evaluation` must return a number"
                raise EvaluationError(f"validation: {problem}", hint=hint)
            scores = {WHOLE_DATASET: float(metrics["avg_reward"])}
            known = ValidationRecord(epoch=epoch, timestamp=run.now(), scores=scores)
            run.append(known)
        await _keep_if_best(trainer, run, known)
        await _warn(trainer, epoch, run, last=last)
    elif epoch == run.journal.num_epochs():  # a process may have been killed before it kept these weights
        await _keep_if_best(trainer, run, known)
    if files_due(epoch):
        write_files(run.journal)
    return known


async def _keep_if_best(trainer: Trainer, run: RunLog, validation: ValidationRecord) -> None:
    scores, measure = held_out_means(run.journal.validations()), BestMeasure.HELD_OUT
    await keep_if_best(trainer.trainer_adapter, run, epoch=validation.epoch, scores=scores, measure=measure)


async def _warn(trainer: Trainer, epoch: int, run: RunLog, *, last: bool) -> None:
    """Warn of a fall, else of the likeliest cause of a flat reward; after the last epoch, the summary does."""
    journal, config = run.journal, trainer.run_config
    limits = GuardsConfig() if config is None else config.guards  # a plug-in's `initialize` may not set it
    text = held_out_warning(journal.validations(), run.epochs, limits)
    if text is not None:
        run.warn(text)
    elif epoch and not last and config is not None and epoch < (run.total_epochs or config.num_epochs):
        for cause in (await findings_of(journal.run_dir, ended=False))[:1]:
            text = f"{cause.title}: {cause.seen}, as before." if cause.cause in run.state.warned else str(cause)
            run.warn(f"Diagnosis {after_epoch(epoch)}: {text}", cause.cause)


def held_out_warning(
    validations: Sequence[ValidationRecord], epochs: Callable[[], Sequence[EpochRecord]], config: GuardsConfig
) -> str | None:
    """A warning if the last validation fell below the first one, or far below the best; None otherwise.

    The fall must be more than chance on the same examples, by the rule of the verdict, but one that failed counts as
    the lowest score. Far means that less than `collapse_share` is left of the height above the worst score seen, as for
    the rewards in training. Epochs are read only to explain a fall.
    """
    if not _fallen(validations, config) or _fallen(validations[:-1], config):
        return None
    scores, last = held_out_means(validations), validations[-1].epoch
    best = max((each.epoch for each in validations[:-1]), key=scores.__getitem__)
    failures = "; ".join(map(str, validations[-1].failures))
    failed = f", failed examples counted as the lowest ({failures})" if failures else ""
    seen = f"The held-out score fell from {scores[best]:.3f} {after_epoch(best)} to {scores[last]:.3f}"
    seen += f" {after_epoch(last)}{failed}."
    trained = [epoch for epoch in epochs() if epoch.epoch < last]
    newest = trained[-1] if trained else None
    # The training reward tells a model that learned the wrong thing from a broken one.
    if newest is not None and newest.played and not newest.relative and not Window(trained, guards=config).fallen:
        seen += f" The mean reward in training did not ({newest.avg_reward:.3f} in epoch {epoch_number(newest.epoch)})."
        return f"{seen} {held_out_differs.remedy}"
    found = explanation_of(trained, config)
    return f"{seen} " + ("The cause is not known." if found is None else f"{found.sentence} {found.remedy}")


def _fallen(validations: Sequence[ValidationRecord], config: GuardsConfig) -> bool:
    if len(validations) < 2:
        return False
    *earlier, last = scores = same_examples(validations)
    best = max(earlier, key=lambda own: mean([*own.values()]))
    worst = min(score for own in scores for score in own.values())
    far = mean([*last.values()]) - worst < config.collapse_share * (mean([*best.values()]) - worst)
    copies = validations[0].copies | validations[-1].copies
    found = (compare(own, last, copies) for own in ([earlier[0], best] if far else earlier[:1]))
    return any(each is not None and each.verdict is Verdict.WORSE for each in found)


def plateaued(scores: Sequence[float], config: EarlyStoppingConfig) -> bool:
    """True if none of the last `patience` scores beats the best one before them by more than `min_delta`."""
    if len(scores) <= config.patience:
        return False
    best_before = max(scores[: -config.patience])
    return max(scores[-config.patience :]) - best_before <= config.min_delta
