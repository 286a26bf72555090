import json
import os
from pathlib import Path

from fakes.made_spans import root
from nat.telemetry.rollout_spans import Evaluation
from nat.telemetry.span_file import SpanFile


def file_at(path: Path, *, max_bytes=None, max_files=5, begin_anew=False) -> SpanFile:
    return SpanFile(path, "project", max_bytes=max_bytes, max_files=max_files, begin_anew=begin_anew)


def test_a_span_is_a_line_of_json(tmp_path):
    """Ids are hexadecimal, times nanoseconds, attributes and events plain JSON."""
    path = tmp_path / "new" / "spans.jsonl"
    assert file_at(path).send([root(1), root(2, Evaluation("reward", 1.0))]) == 0
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["project"], first["name"], first["parent_id"]) == ("project", "invoke_workflow agent", None)
    assert first["trace_id"] == f"{1001:032x}"
    assert first["end_time"] - first["start_time"] == 1_000_000_000
    assert first["attributes"]["nat.finetune.example_id"] == "1"
    assert second["events"][0]["attributes"]["gen_ai.evaluation.score.value"] == 1.0


def test_an_existing_file_is_continued_unless_it_is_to_be_overwritten(tmp_path):
    """`mode: append` keeps the lines of earlier commands."""
    path = tmp_path / "spans.jsonl"
    for begin_anew, lines in ((False, 1), (False, 2), (True, 1)):
        file_at(path, begin_anew=begin_anew).send([root(1)])
        assert len(path.read_text().splitlines()) == lines


def test_a_full_file_is_renamed_and_the_oldest_deleted(tmp_path):
    """With rolling, the path is the folder, the newest lines are in the file of the project, and few files stay."""
    folder = tmp_path / "spans"
    file = file_at(folder, max_bytes=10, max_files=2)
    for number in range(6):
        file.send([root(number)])
    rolled = sorted(folder.glob("project_export_*.log"))
    assert [json.loads(path.read_text())["attributes"]["nat.finetune.example_id"] for path in rolled] == ["3", "4"]
    assert json.loads((folder / "project_export.log").read_text())["attributes"]["nat.finetune.example_id"] == "5"


def test_old_files_are_deleted_at_the_start_if_wished(tmp_path):
    """Files of other names stay."""
    for name in ("s_1.jsonl", "s_2.jsonl", "s_3.jsonl", "other.jsonl"):
        (tmp_path / name).touch()
    file_at(tmp_path / "s.jsonl", max_bytes=10, max_files=1).clean_up()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.jsonl", "s_3.jsonl"]


def test_a_fifo_is_not_emptied(tmp_path):
    """Opening one waits for its reader, and the command would not begin."""
    os.mkfifo(tmp_path / "spans")
    file_at(tmp_path / "spans", begin_anew=True).close()
    assert (tmp_path / "spans").is_fifo()
