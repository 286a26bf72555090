"""The order of the batch, the rows of the trained model, and the folder from which a backend goes on."""

import json

import pytest
import yaml

from fakes.recorded_updates import job, journal, now, rollout, row
from nat.errors import JournalError
from nat.finetuning.trajectories.groups import example_id
from nat.plugins.local.recorded_update import (
    _groups,
    _mismatch,
    _of_role,
    _places,
    _role,
    _rows_of_file,
    recorded_update,
    resumed_folder,
)
from nat.plugins.offline.builder import DatasetTrajectoryBuilder, DatasetTrajectoryBuilderConfig
from nat.runs.journal import Journal
from nat.runs.records import Phase
from nat.runs.rollouts import LeftOutCause, RolloutRecord

__all__ = ["journal", "now"]


def test_groups_are_in_the_order_of_training(journal):
    """As their first rollouts were recorded; with a curriculum, the easiest first."""
    left_out = {"left_out": LeftOutCause.NO_REWARD_DIFFERENCE}
    records = [rollout("9", 0, 0.0), rollout("2", 0, 1.0), rollout("5", 0, 1.0, **left_out), rollout("9", 1, 0.5)]
    journal.record_rollouts(Phase.TRAIN, 0, records)
    names = [[(each.example_id, each.generation) for each in group] for group in _groups(journal, 0, {})]
    assert names == [[("9", 0), ("9", 1)], [("2", 0)]]
    assert [group[0].example_id for group in _groups(journal, 0, {"enabled": True})] == ["2", "9"]
    ascending = {"enabled": True, "sort_ascending": True}
    assert [group[0].example_id for group in _groups(journal, 0, ascending)] == ["9", "2"]


def test_an_epoch_without_tokens_is_refused():
    """Unless a file has its rows, and gives the epoch the same ones."""
    with pytest.raises(JournalError, match="no exact tokens of the rollouts of epoch 1"):
        _rows_of_file({}, {}, 0, ["1"])


def test_rows_of_a_file_are_read_again(tmp_path):
    """In the order in which they were trained; a file with other rows is refused with its path."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": "p", "completion": name}) + "\n" for name in "abc"))
    block = {"_type": "dataset_traj_builder", "file_path": str(rows), "examples_per_epoch": 2}
    config, settings = {"trajectory_builders": {"rows": block}}, {"trajectory_builder": "rows", "seed": 3}
    builder = DatasetTrajectoryBuilder(DatasetTrajectoryBuilderConfig.model_validate(block))
    names = [example_id(group[0]) for group in builder.rows_of(1, 3)]
    found = _rows_of_file(config, settings, 1, names[::-1])
    assert [example_id(group[0]) for group in found] == names[::-1]
    with pytest.raises(JournalError, match=f"{rows} gives epoch 2 other rows than it had: 99 is not"):
        _rows_of_file(config, settings, 1, [*names, "99"])


def test_rows_of_another_model_are_not_trained():
    """The version of an answer's weights begins with the model's name."""
    record = RolloutRecord(example_id="1", generation=0, rows=[row(), row("helper@0"), row(None)])
    assert _places(record, "student") == [0, 2]


def test_a_backend_goes_on_from_links(journal, now, tmp_path):
    """Later checkpoints are left out, and none of the run's files changes."""
    for epoch, step in enumerate((2, 4, 6)):
        journal.record_job(job(now, epoch, step))
        (tmp_path / "checkpoints" / f"step_{step:06d}").mkdir(parents=True)
        (tmp_path / "checkpoints" / f"step_{step:06d}" / "state.json").touch()
    with resumed_folder(journal, {"": 4}) as folder:
        links = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert links == ["step_000002", "step_000004"]
    assert (tmp_path / "checkpoints" / "step_000004" / "state.json").exists()
    with resumed_folder(journal, {"": 0}) as folder:
        assert list(folder.iterdir()) == []


def test_weights_that_are_gone(journal, now, tmp_path):
    """The epochs that can be replayed are named: those that begin with the model or with a checkpoint."""
    for epoch, step in enumerate((2, 4, 6)):
        journal.record_job(job(now, epoch, step))
    (tmp_path / "checkpoints" / "step_000004").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step_000004" / "state.json").touch()
    with (
        pytest.raises(JournalError, match="begin with the model or a checkpoint: 1, 3\n"),
        resumed_folder(journal, {"": 2}),
    ):
        pass


def test_weights_of_a_role_that_are_gone(journal, now, tmp_path):
    """Its optimizer steps are named, since those of the epochs are of all roles."""
    journal.record_job(job(now, 0, 2))
    (tmp_path / "llms" / "small" / "checkpoints" / "step_000004").mkdir(parents=True)
    (tmp_path / "llms" / "small" / "checkpoints" / "step_000004" / "state.json").touch()
    with (
        pytest.raises(JournalError, match="it has those of steps 0, 4\n"),
        resumed_folder(journal, {"llms/small": 2}),
    ):
        pass


def test_folders_of_other_names_are_no_checkpoints(journal, now):
    """Nor are links, which may lead anywhere."""
    for name in ("step_x9", "step_1_5", "step_000003"):
        (journal.run_dir / "checkpoints" / name).mkdir(parents=True)
        (journal.run_dir / "checkpoints" / name / "state.json").touch()
    (journal.run_dir / "checkpoints" / "step_000002").symlink_to("step_000003")
    with resumed_folder(journal, {"": 3}) as folder:
        assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step_000003"]


@pytest.mark.parametrize(
    ("roles", "name", "message"),
    [
        ({"plan": {}, "work": {}}, None, "the run trains several models; it has plan, work"),
        ({"plan": {}, "work": {}}, "x", "there is no role 'x'; it has plan, work"),
        ({}, "plan", "there is no role 'plan'; the run trains one model"),
    ],
)
def test_a_role_is_named_where_there_are_several(roles, name, message):
    """With those that there are."""
    with pytest.raises(JournalError, match=message):
        _role(roles, name)


def test_a_role_has_its_own_part_of_a_job(now):
    """Under the name that its backend knows; a role that was not called in the epoch has none."""
    metrics = {"policy_step": 4.0, "plan/policy_step": 2.0, "plan/loss": 0.5}
    training = {"algorithm": "grpo", "roles": {"plan": {"algorithm": "rloo"}}}
    steps = [{"plan/loss": 0.5}, {"work/loss": 0.7}]
    whole = job(now, 0, 4).model_copy(update={"metrics": metrics, "steps": steps, "training": training})
    own = _of_role(whole, "plan")
    assert (own.id, own.metrics, own.steps) == ("run-0-plan", {"policy_step": 2.0, "loss": 0.5}, [{"loss": 0.5}])
    assert own.training == {"algorithm": "rloo"}
    with pytest.raises(JournalError, match="epoch 1 has no update of the role 'work'"):
        _of_role(whole, "work")


def test_differences_of_other_models_are_left_out(journal, now):
    """A rollout has rows of several models; the journal keeps all their differences together."""
    both = rollout("9", 0, 1.0).model_copy(update={"rows": [row("plan@1"), row("work@1")]})
    journal.record_job(job(now, 0, 1).model_copy(update={"mismatch": {"9": b"abcd"}}))
    assert [_mismatch(journal, 0, name, [both]) for name in ("plan", "work")] == [b"ab", b"cd"]
    assert _mismatch(journal, 1, "plan", [both]) is None


def test_an_update_by_a_program_is_not_trained_again(tmp_path, now):
    """The learner did not make it, so what the learner makes of the batch is no replay."""
    text = yaml.safe_dump(
        {
            "llms": {"student": {"_type": "local", "model": "student"}},
            "trainer_adapters": {"mine": {"_type": "command_trainer_adapter", "llm": "student", "command": ["train"]}},
            "finetuning": {"trainer_adapter": "mine"},
        }
    )
    with Journal.create(tmp_path, "run", text, created_at=now) as journal:
        journal.record_job(job(now, 0, 1).model_copy(update={"training": {"algorithm": "grpo"}}))
        with pytest.raises(JournalError, match="a program of yours has trained epoch 1"):
            recorded_update(journal, 0)
