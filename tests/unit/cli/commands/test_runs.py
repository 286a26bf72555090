"""`nat runs` reads runs, and frees their disk."""

import json
from io import StringIO

import pytest

from fakes.runs_on_disk import make_run
from fakes.training_rows import sent_job
from nat.backend.checkpoint_folder import write_manifest
from nat.cli.main import exit_code
from nat.runs.journal import Journal
from nat.runs.liveness import marked_alive
from nat.runs.records import RunState


@pytest.fixture
def root(tmp_path):
    make_run(tmp_path, "20260314-120000-aaaa", solved=(2, 3))
    make_run(tmp_path, "20260314-130000-bbbb")
    return tmp_path


def files_of(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def told(capsys, *arguments):
    assert exit_code(["runs", *map(str, arguments)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("show", "latest"),
        ("show", "latest", "--epoch", 1),
        ("show", "20260314-13", "--epoch", 3, "--worst", 2, "--best", 1, "--failed", 1, "--example", "d"),
        ("show", "20260314-13", "--validation", 0, "--worst", 1),
        ("compare", "20260314-12", "latest"),
    ],
)
def test_each_page_has_its_json(root, capsys, arguments):
    """Both are printed without a control character, and no file of the runs changes."""
    before = files_of(root)
    page = told(capsys, *arguments, "--output_dir", root)
    text = told(capsys, *arguments, "--output_dir", root, "--json")
    assert page
    assert not set(page) & set("\x1b\x07\u202e\x9b\r")
    assert text.isascii()
    assert isinstance(json.loads(text), dict)
    assert files_of(root) == before


def test_rollouts_are_chosen_by_options(root, capsys):
    """Epochs are counted from 1 on the command line, and from 0 in the record, as in the files."""
    record = json.loads(told(capsys, "show", "latest", "--epoch", 3, "--worst", 1, "--output_dir", root, "--json"))
    assert (record["run_id"], record["phase"], record["epoch"]) == ("20260314-130000-bbbb", "train", 2)
    assert [rollout["reward"] for rollout in record["rollouts"]] == [0.25]
    assert "rows" not in record["rollouts"][0]
    every = json.loads(told(capsys, "show", "latest", "--validation", 0, "--output_dir", root, "--json"))
    assert len(every["rollouts"]) == 10


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("latest", "--worst", "3"), "are about the rollouts of --epoch N or --validation N"),
        (("latest", "--epoch", "1", "--validation", "1"), "name different rollouts; give one of them"),
        (("latest", "--epoch", "1", "--tokens"), "--tokens needs the rollouts to show"),
        (("latest", "--epoch", "0"), "0 is not in the range"),
        (("latest", "--epoch", "9"), "has no rollouts of epoch 9; it has epochs 1 to 3"),
        (("latest", "--epoch", "1", "--worst", "1", "--tokens"), "no tokenizer.json in"),
        (("20260314-13000x",), "Did you mean '20260314-130000-bbbb'?"),
        (("20260314",), "begins the id of 2 runs"),
    ],
)
def test_a_wrong_request_says_what_to_do(root, capsys, arguments, problem):
    """The error names what was seen and what there is."""
    assert exit_code(["runs", "show", *arguments, "--output_dir", str(root)]) != 0
    assert problem in capsys.readouterr().err


@pytest.fixture
def trained(root):
    """The newer run has trained a model: three checkpoints, one damaged, and the batch of an update."""
    newest = root / "20260314-130000-bbbb"
    for name in ("step_1", "step_2", "step_3", "step_4.damaged"):
        folder = newest / "checkpoints" / name
        folder.mkdir(parents=True)
        for file in ("model.safetensors", "optimizer.safetensors"):
            (folder / file).write_bytes(bytes(1000))
        write_manifest(folder, "checkpoint")
    (newest / "checkpoints/latest").symlink_to("step_3")
    (newest / "checkpoints/best").symlink_to("step_2")
    with Journal.open(newest) as journal:
        journal.keep_batch("student", sent_job("job"), needed_from=None)
    (root / "latest").symlink_to(newest.name)
    return newest


def test_pruned_runs_keep_their_records_and_their_best_and_last_weights(root, trained, capsys):
    """What they need only to train on goes: optimizer states, other checkpoints, batches."""
    with marked_alive(make_run(root, "20260314-140000-cccc", state=RunState.RUNNING)):
        text = told(capsys, "prune", "--yes", "--output_dir", root)
    assert "cccc" not in text
    assert "\nFreed 7 kB" in text
    left = {str(path.relative_to(trained)) for path in trained.rglob("*.safetensors") if path.parent.is_dir()}
    assert left == {f"checkpoints/{step}/model.safetensors" for step in ("step_2", "step_3")}
    with Journal.open(trained, read_only=True) as journal:
        assert journal.batches("student") == []
    assert told(capsys, "show", "20260314-13", "--epoch", 1, "--worst", 1, "--output_dir", root)


def test_a_run_that_may_go_on_is_not_pruned(root, capsys):
    """It would train on without its optimizer; the message says how to be rid of it."""
    make_run(root, "20260314-140000-cccc", state=RunState.FAILED)
    assert exit_code(["runs", "prune", "latest", "--yes", "--output_dir", str(root)]) == 1
    assert "has not completed, and may go on" in capsys.readouterr().err


def test_deleted_runs_are_gone_and_latest_is_the_one_before(root, trained, capsys, monkeypatch):
    """After a question, which names them with their sizes; a run that is going on is not deleted."""
    monkeypatch.setattr("sys.stdin", StringIO("n\n"))
    assert "Delete 1 run?" in told(capsys, "delete", "latest", "--output_dir", root)
    with marked_alive(trained):
        assert exit_code(["runs", "delete", "latest", "--yes", "--output_dir", str(root)]) == 1
    assert trained.is_dir()
    text = told(capsys, "delete", "latest", "--yes", "--output_dir", root)
    assert str(trained) in text
    assert sorted(path.name for path in root.iterdir()) == ["20260314-120000-aaaa", "latest"]
    assert (root / "latest").resolve().name == "20260314-120000-aaaa"
    told(capsys, "delete", "20260314-12", "--yes", "--output_dir", root)
    assert list(root.iterdir()) == []


def test_what_was_meant_by_latest_is_said(root, capsys):
    """Each page has the run's id, since another run may have begun meanwhile."""
    for command in ("runs show latest", "diagnose latest", f"runs rollouts latest {root}/rows.jsonl"):
        assert exit_code([*command.split(), "--output_dir", str(root)]) == 0
        assert "20260314-130000-bbbb" in capsys.readouterr().out
