"""The plot of a run, drawn in a process of its own: `python -m nat.runs.plot_process RUN_DIR`.

A plotting library takes 45 MB, more with each picture of a long run, and holds up whatever runs beside it.
"""

import sys
from pathlib import Path

from nat.builder.child_processes import run_module
from nat.errors import NatError, describe_error
from nat.runs.journal import Journal
from nat.runs.plot import PLOT_NAME, draw
from nat.secrets import keep_files_private


async def draw_run(run_dir: Path) -> str | None:
    """Replace the plot of a run; what went wrong, or None."""
    code, said = await run_module(__name__, str(run_dir))
    return (said or f"the process that draws ended with exit code {code}") if code else None


def main(run_dir: Path) -> str | None:
    """Draw what the journal holds; what went wrong, or None."""
    keep_files_private()
    try:
        with Journal.open(run_dir, read_only=True) as journal:
            run_id = journal.info().run_id
            draw(run_dir / PLOT_NAME, run_id, journal.epochs(), journal.validations(), journal.summary())
    except (OSError, NatError) as error:
        return describe_error(error)
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
