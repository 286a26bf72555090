"""`nat runs` reads runs and changes none."""

import json

import pytest

from fakes.runs_on_disk import make_run
from nat.cli.main import exit_code


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
