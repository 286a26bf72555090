import json
import logging
from collections.abc import Iterator

import pytest

from fakes.run_records import NOON, epoch_record, rollout_record, validation_record
from fakes.training_rows import row_of
from nat.runs.folder import (
    GUIDE_NAMES,
    create_run_folder,
    link_guide_names,
    write_files,
    write_trajectories,
)
from nat.runs.journal import Journal
from nat.runs.records import Phase, RunSummary, Verdict
from nat.runs.rollouts import LeftOutCause


def test_the_guides_files_link_to_the_latest_run(tmp_path):
    """The guide's file names in output_dir are links that follow `latest`."""
    for run_id in ("run-1", "run-2"):
        run_dir = create_run_folder(tmp_path, run_id)
        (run_dir / "reward_history.json").write_text(run_id)
        link_guide_names(tmp_path)
    assert (tmp_path / "reward_history.json").read_text() == "run-2"


def test_a_users_file_is_never_replaced(tmp_path, caplog):
    """A file or folder under a link's name stays, with a warning that names this run's file."""
    (tmp_path / "latest").mkdir()
    run_dir = create_run_folder(tmp_path, "run-1")
    assert (tmp_path / "latest").is_dir()
    (tmp_path / "latest").rmdir()
    (tmp_path / "latest").symlink_to("run-1")
    for name in GUIDE_NAMES:
        (tmp_path / name).write_text("mine")
        (run_dir / name).write_text("the run's")
    with caplog.at_level(logging.WARNING):
        link_guide_names(tmp_path)
    assert {(tmp_path / name).read_text() for name in GUIDE_NAMES} == {"mine"}
    assert f"this run's file is {tmp_path / 'latest/summary.json'}" in caplog.text


@pytest.fixture
def journal(tmp_path) -> Iterator[Journal]:
    run_dir = create_run_folder(tmp_path, "run-1")
    with Journal.create(run_dir, "run-1", "seed: 7\n", created_at=NOON) as opened:
        yield opened


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_training_metrics_have_the_documented_fields(journal):
    """Each epoch is a line; the curriculum's state is there only if it is on."""
    journal.record(epoch_record(0, curriculum_percentile=1.0, metrics={"train/entropy": 0.5}))
    journal.record(epoch_record(1, curriculum_percentile=0.3, curriculum_state={"current_percentile": 0.3}))
    write_files(journal)
    first, second = lines(journal.run_dir / "training_metrics.jsonl")
    documented = {
        *("epoch", "timestamp", "run_id", "avg_reward", "min_reward", "max_reward", "num_trajectories", "num_groups"),
        *("filtered_trajectories", "filtered_groups", "filtered_avg_reward", "filtered_min_reward"),
        *("filtered_max_reward", "curriculum_percentile"),
    }
    assert documented <= first.keys()
    assert "curriculum_state" not in first
    assert first["metrics"] == {"train/entropy": 0.5}
    assert second["curriculum_state"] == {"current_percentile": 0.3}
    assert json.loads((journal.run_dir / "curriculum_state.json").read_text()) == {"current_percentile": 0.3}


def test_reward_history_has_the_documented_fields(journal):
    """Other tools plot reward_history.json, so its fields are exact."""
    journal.record(epoch_record(0, 0.25))
    write_files(journal)
    (entry,) = json.loads((journal.run_dir / "reward_history.json").read_text())
    timestamp = entry.pop("timestamp")
    assert timestamp.startswith("2026-03-14T12:00:00")
    assert entry == {"epoch": 0, "avg_reward": 0.25, "min_reward": 0.0, "max_reward": 1.0, "num_trajectories": 192}


def test_a_failed_validation_example_is_no_zero(journal):
    """The mean is over scored examples; the others are counted."""
    journal.record(validation_record(0, {"a": 1.0, "b": None, "c": 0.5}))
    journal.record(validation_record(5, {"a": None}))
    write_files(journal)
    first, second = json.loads((journal.run_dir / "validation_history.json").read_text())
    assert (first["avg_reward"], first["num_examples"], first["num_failed"]) == (0.75, 2, 1)
    assert (second["avg_reward"], second["min_reward"], second["num_examples"]) == (None, None, 0)


def test_summary_has_the_documented_fields(journal):
    """Scripts read summary.json; the verdict is one of three words."""
    summary = RunSummary(
        run_id="run-1",
        before=0.2,
        after=0.9,
        difference=0.7,
        interval=(0.6, 0.8),
        confidence=0.95,
        verdict=Verdict.NOT_SHOWN,
        num_examples=10,
        num_left_out=1,
        epochs=3,
        seconds=1.5,
        tokens_trained=99,
        model="model",
        plot="reward_plot.png",
    )
    journal.record(summary)
    write_files(journal)
    read = json.loads((journal.run_dir / "summary.json").read_text())
    assert read["verdict"] == "not shown"
    assert read["interval"] == [0.6, 0.8]
    assert RunSummary.model_validate(read) == summary
    assert json.loads((journal.run_dir.parent / "summary.json").read_text()) == read


def test_trajectories_have_a_line_per_rollout(journal):
    """Each line has ids, logprobs, messages, and the cause of a rollout that was left out."""
    row = row_of([5, 6], [None, -0.25])
    journal.record_rollouts(
        Phase.TRAIN,
        3,
        [
            rollout_record(
                "a", messages=[{"role": "user", "content": "é\nsecond line"}], rows=[row], completion_tokens=1
            ),
            rollout_record("b", reward=None, left_out=LeftOutCause.FAILED, error="ValueError: boom"),
        ],
    )
    path = write_trajectories(journal, Phase.TRAIN, 3)
    assert path == journal.run_dir / "trajectories" / "epoch_0003.jsonl"
    first, second = lines(path)
    assert first["rows"] == [{"token_ids": [5, 6], "spans": [{"start": 1, "stop": 2, "logprobs": [-0.25]}]}]
    assert first["conversations"][0]["messages"] == [{"role": "user", "content": "é\nsecond line"}]
    assert (second["left_out"], second["error"]) == ("the workflow raised an error", "ValueError: boom")
    assert write_trajectories(journal, Phase.VALIDATION, 3).name == "validation_0003.jsonl"
