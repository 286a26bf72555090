"""What a run that ended before its time leaves behind, and how to use it."""

from pathlib import Path

from nat.wire.serving import CHECKPOINTS, NEWEST_CHECKPOINT


def remains(run_dir: Path, trained_llm: str | None) -> list[str]:
    """One sentence per line; checkpoints are named if the run wrote some."""
    lines = [f"What the run did until now is in {run_dir}"]
    newest = run_dir / CHECKPOINTS / NEWEST_CHECKPOINT
    if newest.is_dir():
        option = f"-o llms.{trained_llm or '<name>'}.model"
        path = newest.parent / newest.resolve().name
        lines.append(f"Newest checkpoint: {path}; it loads as a model: `{option} {path}`")
    return lines
