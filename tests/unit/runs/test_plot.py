"""A child process draws the plot and reports its errors."""

import math
import struct

import pytest

from fakes.run_records import NOON, epoch_record, epoch_records, validation_record
from nat.runs.journal import Journal
from nat.runs.plot import PLOT_NAME, draw, draw_run
from nat.runs.records import RunSummary, Verdict

SUMMARY = RunSummary(
    run_id="run-1",
    before=0.2,
    after=0.9,
    difference=0.7,
    interval=(0.6, 0.8),
    verdict=Verdict.IMPROVED,
    num_examples=2,
    epochs=8,
    seconds=75,
    tokens_trained=10,
)


def size_of(path):
    """Width and height in the PNG's header."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", data[16:24])


@pytest.mark.parametrize(
    ("epochs", "validations", "summary"),
    [
        pytest.param(
            epoch_records([0.2, 0.4, 0.5, 0.6, 0.7, 0.8]),
            [validation_record(0), validation_record(6)],
            SUMMARY,
            id="whole",
        ),
        pytest.param(
            epoch_records([-3.0], min_reward=-5.0, max_reward=9.0),
            [validation_record(0, {"a": None})],
            None,
            id="scores failed",
        ),
        pytest.param([], [validation_record(0)], None, id="before the first epoch"),
        pytest.param(
            epoch_records([0.1] * 10, min_reward=0.1, max_reward=0.1),
            [validation_record(epoch, {str(i): 0.1 for i in range(10)}) for epoch in (0, 10)],
            None,
            id="equal rewards and scores, whose mean is rounded",
        ),
        pytest.param(epoch_records([0.1]), [validation_record(1, {"a": 0.3})], None, id="one of each"),
        pytest.param(
            epoch_records([math.nan, 0.1]),
            [validation_record(0, {"a": math.nan, "b": 1e308, "c": -1e308, "d": 0.5})],
            None,
            id="numbers that cannot be averaged",
        ),
        pytest.param([], [], None, id="nothing yet"),
    ],
)
def test_the_picture_has_a_fixed_size(tmp_path, epochs, validations, summary):
    """It has 12 x 7 inches at 150 dpi for any records, without a warning."""
    path = tmp_path / "plot.png"
    draw(path, "run-1", epochs, validations, summary)
    assert size_of(path) == (1800, 1050)
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def run_dir(tmp_path):
    """A run with one epoch that continues."""
    with Journal.create(tmp_path, "run-1", "config: 1\n", created_at=NOON) as journal:
        journal.record(epoch_record())
        yield tmp_path


@pytest.mark.slow
async def test_the_process_draws_the_journal(run_dir):
    """The picture equals that of `draw`, is written during the run, and is private to its owner."""
    assert await draw_run(run_dir) is None
    path = run_dir / PLOT_NAME
    drawn, mode = path.read_bytes(), path.stat().st_mode
    draw(path, "run-1", [epoch_record()], [], None)
    assert drawn == path.read_bytes()
    assert mode & 0o777 == 0o600
