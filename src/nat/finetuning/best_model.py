"""The best weights of a run: keep their checkpoint, export them, and report their path."""

import logging
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from nat.finetuning.interfaces.trainer_adapter import CheckpointKeeper, TrainerAdapter
from nat.finetuning.run_log import RunLog
from nat.finetuning.summary import path_in_run
from nat.runs.records import BestEpoch, BestMeasure
from nat.wire.serving import CHECKPOINTS, LLMS

logger = logging.getLogger(__name__)

BEST_MODEL = "best_model"
"""Folder in the run's folder that the best model is exported to."""
LAST_MODEL = "model"
"""Likewise, of the weights at the end of a run that has completed."""


async def keep_if_best(
    adapter: TrainerAdapter, run: RunLog, *, epoch: int, scores: Mapping[int, float], measure: BestMeasure
) -> None:
    """Keep the current weights, those after `epoch` epochs, if none scored as high; of equal ones the earliest stays.

    `scores` by epoch count failures alike. The weights before training need no checkpoint: the run started from them.
    """
    best, score = run.journal.find(BestEpoch), scores.get(epoch)
    if score is None or (best is not None and score <= scores.get(best.epoch, best.score)):
        return
    kept = await adapter.keep_best() if epoch > 0 and isinstance(adapter, CheckpointKeeper) else None
    record = BestEpoch(epoch=epoch, score=score, measure=measure)
    if kept is not None:
        folder, *others = (each and path_in_run(Path(each), run.journal.run_dir) for each in (kept.path, *kept.others))
        found = {"weights": kept.name, "checkpoint": folder, "others": others}
        record = record.model_copy(update=found)
    run.append(record)


async def export_best(adapter: TrainerAdapter, run: RunLog) -> Path | None:
    """Write the best weights as a model, if the run keeps some."""
    path = await adapter.export_best(BEST_MODEL) if isinstance(adapter, CheckpointKeeper) else None
    best = run.journal.find(BestEpoch)
    if path is None:
        where = "none was found" if best is None else best_text(best, run.journal.run_dir)
        run.warn(f"finetuning.export_best: no model was written; the best model: {where}")
    else:
        logger.info("Best model: %s (%s)", path, best)
    return path


def saved_results(run_dir: Path, best: BestEpoch | None) -> list[str]:
    """List what a run that ended early has saved and how to use it, one sentence per line."""
    if not run_dir.is_dir():
        return []
    trained = [each for each in (run_dir, *sorted((run_dir / LLMS).glob("*"))) if (each / CHECKPOINTS).is_dir()]
    newest = [f"Newest weights as a model: `nat runs export {quote(str(each))} --checkpoint last`" for each in trained]
    best_model = [] if best is None else [f"Best model: {best_text(best, run_dir)}"]
    return [f"The run's records are in {run_dir}", *newest, *best_model]


def best_text(best: BestEpoch, run_dir: Path) -> str:
    """Describe the best model: its score, its path, and the command that exports it as a plain model."""
    if best.epoch == 0:
        return f"the one that the run started from ({best})"
    if best.others:
        own = [run_dir / each for each in (best.checkpoint, *best.others) if each]
        commands = [f"`nat runs export {quote(str(folder.parent.parent))}`" for folder in own]
        return f"{best.weights} ({best}); as plain models: {' and '.join(commands)}"
    if best.checkpoint is not None:
        return f"{run_dir / best.checkpoint} ({best}); as a plain model: `nat runs export {quote(str(run_dir))}`"
    return f"{best.weights or 'not kept, as the adapter keeps no checkpoints'} ({best})"
