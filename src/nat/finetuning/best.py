"""Which weights of a run were the best so far, that their checkpoint stays, and a plain model of it."""

import logging
from pathlib import Path

from nat.errors import describe_error
from nat.finetuning.interfaces.checkpoint_keeper import CheckpointKeeper
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.remains import best_text
from nat.finetuning.scope import RunScope
from nat.finetuning.summary import path_in_run
from nat.runs.records import BestEpoch, BestMeasure

logger = logging.getLogger(__name__)

BEST_MODEL = "best_model"
"""Under this name the best model is exported into the run's folder."""


async def keep_if_best(
    adapter: TrainerAdapter, scope: RunScope, *, epoch: int, score: float | None, measure: BestMeasure
) -> None:
    """Keep the current weights, those after `epoch` epochs, if none scored as high; of equal ones the earliest stays.

    The weights before training need no checkpoint: they are the model that the run started from.
    """
    best = scope.journal.best()
    if score is None or (best is not None and score <= best.score):
        return
    kept = await adapter.keep_best() if epoch > 0 and isinstance(adapter, CheckpointKeeper) else None
    path = None if kept is None or kept.path is None else path_in_run(kept.path, scope.journal.run_dir)
    record = BestEpoch(
        epoch=epoch, score=score, measure=measure, weights=None if kept is None else kept.name, checkpoint=path
    )
    scope.journal.record_best(record)
    logger.info("Best so far: %s", record)


async def exported_best(adapter: TrainerAdapter, scope: RunScope) -> Path | None:
    """Write the best weights as a model, if the run keeps some."""
    path = await adapter.export_best(BEST_MODEL) if isinstance(adapter, CheckpointKeeper) else None
    best = scope.journal.best()
    if path is None:
        where = "none was found" if best is None else best_text(best, scope.journal.run_dir)
        scope.warn(f"finetuning.export_best: no model was written; the best model: {where}")
    else:
        logger.info("Best model: %s (%s)", path, best)
    return path


async def export_best_after(error: BaseException, adapter: TrainerAdapter, scope: RunScope) -> None:
    """A run that failed may have been good before; a cancelled one ends at once."""
    if not isinstance(error, Exception):
        return
    try:
        path = await exported_best(adapter, scope)
    except Exception as second:
        logger.exception("the best model could not be exported")
        error.add_note(f"the best model could not be exported: {describe_error(second)}")
    else:
        if path is not None:
            scope.progress.message(f"Best model: {path} ({scope.journal.best()})")
