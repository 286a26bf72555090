"""`nat runs export` selects the checkpoint, `nat runs rollouts` the rows."""

import json

import pytest

from fakes.run_records import NOON
from fakes.runs_on_disk import make_run
from nat.cli.commands.export import found_checkpoint
from nat.cli.main import exit_code
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


def test_a_run_without_a_checkpoint_says_so(tmp_path):
    """As one that has not come to the end of its first update."""
    (tmp_path / "checkpoints" / "jobs").mkdir(parents=True)
    for name in (None, "last"):
        with pytest.raises(BackendError, match=r"checkpoints has no checkpoint\n"):
            found_checkpoint(tmp_path, name)


def test_the_newest_is_not_taken_for_the_best(run_dir):
    """If the starting model was the best, the newest checkpoint must be named explicitly."""
    with Journal.create(run_dir, "run-1", "", created_at=NOON) as journal:
        journal.record(BestEpoch(epoch=0, score=0.5, measure=BestMeasure.HELD_OUT))
    for name in (None, "best"):
        with pytest.raises(BackendError, match=r"started from \(held-out score 0.500 before training\)"):
            found_checkpoint(run_dir, name)
    assert found_checkpoint(run_dir, "latest").name == "step_000005"


def export(root, file, *arguments):
    return exit_code(["runs", "rollouts", "latest", str(file), "--output_dir", str(root), *map(str, arguments)])


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rollouts_are_exported(tmp_path, capsys):
    """Epochs count from 1 on the command line and from 0 in the file; the report is text or JSON."""
    make_run(tmp_path / "runs", "run-1")
    file = tmp_path / "rows.jsonl"
    assert export(tmp_path, file, "--epoch", 3, "--epoch", 1, "--validation", 0) == 0
    assert "18 rows (grpo) of 16 groups, from 20 rollouts" in capsys.readouterr().out
    assert [row["epoch"] for row in rows(file)] == [0] * 4 + [2] * 4 + [0] * 10
    assert export(tmp_path, file, "--force", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["file"], report["rows"], report["left_out"][0]["count"]) == (str(file), 12, 3)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["--as", "preference"], 1),
        (["--as", "preference", "--margin", "0.75"], 1),
        (["--as", "preference", "--pairs", "best_worst", "--max_pairs", 1], 1),
        (["--as", "kto"], 2),
        (["--as", "kto", "--min_reward", "0.5"], 5),
        (["--as", "messages"], 3),
        (["--as", "messages", "--min_reward", "0.75"], 2),
        (["--tokens"], 4),
    ],
)
def test_each_option_reaches_the_rows(tmp_path, arguments, count):
    """The options are those of the formats."""
    make_run(tmp_path / "runs", "run-1")
    assert export(tmp_path, tmp_path / "rows.jsonl", "--epoch", 1, *arguments) == 0
    assert len(rows(tmp_path / "rows.jsonl")) == count
    assert ("prompt_ids" in rows(tmp_path / "rows.jsonl")[0]) == ("--tokens" in arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["x.jsonl", "--margin", "1"], "--margin has no effect on --as grpo"),
        (["x.jsonl", "--min_reward", "1"], "it is for --as kto and messages"),
        (["x.jsonl", "--tokens", "--validation", "1"], "held-out rollouts are recorded without"),
        (["x.txt"], "trajectories are written as .jsonl"),
        (["x.jsonl", "--epoch", "9"], "has no rollouts of epoch 9"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, monkeypatch, capsys, arguments, problem):
    """The error says what is wrong, and nothing is written."""
    make_run(tmp_path / "runs", "run-1")
    monkeypatch.chdir(tmp_path)
    assert export(tmp_path, *arguments) != 0
    assert problem in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.glob("x.*")) == []
