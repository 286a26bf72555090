"""`nat runs imitate` writes demonstrations and a YAML that trains on them before it plays."""

import json

import pytest
import yaml

from fakes.runs_on_disk import make_run
from nat.cli.main import exit_code
from nat.config.load import load_config
from nat.plugins.offline.builder import read_examples

YAML = """
llms: {student: {_type: local, model: models/small}}
workflow: {_type: command, llm: student, command: [my_agent]}
eval:
  general: {dataset: {_type: json, file_path: rows.json}}
  evaluators: {right: {_type: exact_match}}
trainer_adapters: {weights: {training: {beta: 0.02}}}
finetuning: {enabled: true, num_epochs: 7, reward_function: {name: right}, curriculum_learning: {enabled: true}}
"""
ROWS = [{"id": name, "question": "q", "answer": f"answer {name}"} for name in "abd"] + [{"id": "e", "question": "q"}]


@pytest.fixture
def imitated(tmp_path, monkeypatch, capsys):
    """The exit code of the command in the folder of a run, and what it printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yml").write_text(YAML)
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    began = {"finetuning": {"run_configuration": {"config_file": str(tmp_path / "config.yml")}}}
    make_run(tmp_path / "runs", "run-1", config=began)

    def imitate(*options):
        code = exit_code(["runs", "imitate", "run-1", "--output_dir", "runs", "--trust", *options])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return imitate


def test_played_prompts_are_answered_as_the_rows_say(imitated, tmp_path):
    """Each played example once, if one call without tools answers it; both files can be used as they are."""
    code, printed = imitated()
    assert code == 0, printed
    rows = [json.loads(line) for line in (tmp_path / "imitation.jsonl").read_text().splitlines()]
    assert [row["completion"][0]["content"] for row in rows] == ["answer a", "answer b"]
    assert rows[0]["prompt"] == [{"role": "user", "content": "What is 2 + 2?"}]
    assert len(read_examples(tmp_path / "imitation.jsonl")) == 2
    assert "2 of 3 rows" in printed
    assert "nat finetune --config_file=imitation.yml" in printed
    imitation, play = load_config(tmp_path / "imitation.yml").finetuning.each_phase
    assert (imitation.num_epochs, imitation.trajectory_builder, imitation.trainer_adapter) == (10, *["imitation"] * 2)
    assert (play.num_epochs, play.trainer_adapter, play.curriculum_learning.enabled) == (7, "weights", True)
    assert yaml.safe_load((tmp_path / "imitation.yml").read_text())["trainer_adapters"]["weights"] == {
        "training": {"beta": 0.02}
    }
    assert "exist already" in imitated()[1]
    assert imitated("--force")[0] == 0


def test_without_demonstrations_nothing_is_written(imitated, tmp_path):
    """An agent with tools, or rows without answers, have none; the error says which."""
    (tmp_path / "rows.json").write_text(json.dumps(ROWS[2:3]))
    code, printed = imitated()
    assert code == 1
    assert "several times or offers it tools" in printed
    assert not (tmp_path / "imitation.jsonl").exists()
