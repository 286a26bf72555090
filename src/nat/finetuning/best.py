"""Which weights of a run were the best so far, and that their checkpoint stays."""

import logging

from nat.finetuning.interfaces.checkpoint_keeper import CheckpointKeeper
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.scope import RunScope
from nat.finetuning.summary import path_in_run
from nat.runs.records import BestEpoch, BestMeasure

logger = logging.getLogger(__name__)


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
