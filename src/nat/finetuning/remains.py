"""What a run that ended before its time leaves behind, and how to use it."""

from pathlib import Path

from nat.runs.records import BestEpoch
from nat.wire.serving import CHECKPOINTS, NEWEST_CHECKPOINT


def remains(run_dir: Path, trained_llm: str | None, best: BestEpoch | None) -> list[str]:
    """One sentence per line; checkpoints are named if the run wrote some."""
    if not run_dir.is_dir():
        return []
    lines = [f"What the run did until now is in {run_dir}"]
    newest = run_dir / CHECKPOINTS / NEWEST_CHECKPOINT
    if newest.is_dir():
        option = f"-o llms.{trained_llm or '<name>'}.model"
        path = newest.parent / newest.resolve().name
        lines.append(f"Newest checkpoint: {path}; it loads as a model: `{option} {path}`")
    if best is not None:
        lines.append(f"Best model: {best_text(best, run_dir)}")
    return lines


def best_text(best: BestEpoch, run_dir: Path) -> str:
    """How good it was, where it is, and the command that makes a plain model of it."""
    if best.epoch == 0:
        return f"the one that the run started from ({best})"
    if best.checkpoint is not None:
        return f"{run_dir / best.checkpoint} ({best}); as a plain model: `nat export {run_dir}`"
    return f"{best.weights or 'not kept, as the adapter keeps no checkpoints'} ({best})"
