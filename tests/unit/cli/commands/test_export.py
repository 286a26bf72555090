"""`nat runs export` selects the checkpoint; the export itself is tested with the checkpoints."""

import pytest

from fakes.run_records import NOON
from nat.cli.commands.export import found_checkpoint
from nat.errors import BackendError
from nat.runs.journal import Journal
from nat.runs.records import BestEpoch, BestMeasure


@pytest.fixture
def run_dir(tmp_path):
    """A run with two checkpoints and a link to the newest."""
    folder = tmp_path / "run-1" / "checkpoints"
    for name in ("step_000002", "step_000005"):
        (folder / name).mkdir(parents=True)
        (folder / name / "manifest.json").touch()
    (folder / "latest").symlink_to("step_000005")
    return folder.parent


def test_the_best_is_selected_if_there_is_one_else_the_newest(run_dir):
    """The backend's links decide; other checkpoints are selected by name or by folder."""
    checkpoints = run_dir / "checkpoints"
    assert found_checkpoint(run_dir, None) == checkpoints / "step_000005"
    (checkpoints / "best").symlink_to("step_000002")
    assert found_checkpoint(run_dir, None) == checkpoints / "step_000002"
    assert found_checkpoint(run_dir, "latest") == checkpoints / "step_000005"
    assert found_checkpoint(run_dir, "last") == checkpoints / "step_000005"
    assert found_checkpoint(checkpoints, "step_000005") == checkpoints / "step_000005"
    assert found_checkpoint(checkpoints / "step_000005", None) == checkpoints / "step_000005"


@pytest.mark.parametrize("name", ["step_000009", "best", "../checkpoints", "../../run-1"])
def test_an_unknown_checkpoint_lists_the_known_ones(run_dir, name):
    """Only folders inside the checkpoints' folder can be selected."""
    with pytest.raises(BackendError, match=r"it has latest, step_000002, step_000005"):
        found_checkpoint(run_dir, name)


def test_the_newest_is_not_taken_for_the_best(run_dir):
    """If the starting model was the best, the newest checkpoint must be named explicitly."""
    with Journal.create(run_dir, "run-1", "", created_at=NOON) as journal:
        journal.record_best(BestEpoch(epoch=0, score=0.5, measure=BestMeasure.HELD_OUT))
    for name in (None, "best"):
        with pytest.raises(BackendError, match=r"started from \(held-out score 0.500 before training\)"):
            found_checkpoint(run_dir, name)
    assert found_checkpoint(run_dir, "latest").name == "step_000005"
