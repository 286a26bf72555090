"""`nat export` finds the checkpoint that is meant; what it does with it is tested where checkpoints are."""

import pytest

from fakes.run_records import NOON
from nat.cli.commands.export import found_checkpoint
from nat.errors import BackendError
from nat.runs.journal import Journal
from nat.runs.records import BestEpoch, BestMeasure


@pytest.fixture
def run_dir(tmp_path):
    """A run with two checkpoints, of which the newest has a link."""
    folder = tmp_path / "run-1" / "checkpoints"
    for name in ("step_000002", "step_000005"):
        (folder / name).mkdir(parents=True)
        (folder / name / "manifest.json").touch()
    (folder / "latest").symlink_to("step_000005")
    return folder.parent


def test_the_best_is_meant_if_there_is_one_else_the_newest(run_dir):
    """By the links that the backend made; any other by its name, or by the folder itself."""
    checkpoints = run_dir / "checkpoints"
    assert found_checkpoint(run_dir, None) == checkpoints / "step_000005"
    (checkpoints / "best").symlink_to("step_000002")
    assert found_checkpoint(run_dir, None) == checkpoints / "step_000002"
    assert found_checkpoint(run_dir, "latest") == checkpoints / "step_000005"
    assert found_checkpoint(checkpoints, "step_000005") == checkpoints / "step_000005"
    assert found_checkpoint(checkpoints / "step_000005", None) == checkpoints / "step_000005"


@pytest.mark.parametrize("name", ["step_000009", "best", "../checkpoints", "../../run-1"])
def test_what_is_not_there_is_told_with_what_is(run_dir, name):
    """Nothing outside of the folder of checkpoints is one."""
    with pytest.raises(BackendError, match=r"it has latest, step_000002, step_000005"):
        found_checkpoint(run_dir, name)


def test_the_newest_is_not_taken_for_the_best(run_dir):
    """Where the model before training was the best one, the newest must be asked for."""
    with Journal.create(run_dir, "run-1", "", created_at=NOON) as journal:
        journal.record_best(BestEpoch(epoch=0, score=0.5, measure=BestMeasure.HELD_OUT))
    with pytest.raises(BackendError, match=r"started from \(held-out score 0.500 before training\)"):
        found_checkpoint(run_dir, None)
    assert found_checkpoint(run_dir, "latest").name == "step_000005"
