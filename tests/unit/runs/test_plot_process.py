"""The plot is drawn by another process, which says what went wrong."""

import pytest

from fakes.run_records import NOON, epoch_record
from nat.runs.journal import JOURNAL_NAME, Journal
from nat.runs.plot import PLOT_NAME, draw
from nat.runs.plot_process import draw_run


@pytest.fixture
def run_dir(tmp_path):
    """A run of one epoch that goes on."""
    with Journal.create(tmp_path, "run-1", "config: 1\n", created_at=NOON) as journal:
        journal.record_epoch(epoch_record())
        yield tmp_path


async def test_the_process_draws_what_the_journal_holds(run_dir):
    """While the run goes on, and for its owner alone: the picture that `draw` makes of the same records."""
    assert await draw_run(run_dir) is None
    path = run_dir / PLOT_NAME
    drawn, mode = path.read_bytes(), path.stat().st_mode
    draw(path, "run-1", [epoch_record()], [], None)
    assert drawn == path.read_bytes()
    assert mode & 0o777 == 0o600


async def test_the_reason_comes_back(run_dir):
    """A picture that cannot be written is told in one line, without a traceback."""
    (run_dir / PLOT_NAME).mkdir()
    said = str(await draw_run(run_dir))
    assert said.startswith("IsADirectoryError: ")
    assert "\n" not in said
    (run_dir / JOURNAL_NAME).unlink()
    assert str(await draw_run(run_dir)).startswith(f"JournalError: no {JOURNAL_NAME} in {run_dir}")
