from pathlib import Path

import pytest
import yaml

from fakes.tiny_model import make_tiny_model
from nat.cli.main import exit_code


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_next_commands_are_shown(folder, capsys):
    """After a project is written, its user sees the commands that check and train it."""
    assert exit_code(["init", "demo", "--no_model"]) == 0
    lines = [line.split("#")[0].strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[2:] == [
        "cd demo",
        "edit config.yml",
        "python -m pytest",
        *(f"nat {command} --config_file=config.yml" for command in ("probe", "finetune")),
    ]
    assert (folder / "demo" / "config.yml").is_file()


def test_a_framework_that_is_not_installed_is_named(folder, capsys):
    """The project is written, and the first line says how to install what it needs."""
    assert exit_code(["init", "demo", "--no_model", "--framework", "smolagents"]) == 0
    assert "pip install 'nat-finetuning-harness[local,smolagents]'" in capsys.readouterr().out
    assert "smolagents" in (folder / "demo" / "agent.py").read_text()


@pytest.mark.parametrize("given", ["model", "Qwen/Qwen2.5-0.5B-Instruct"])
def test_a_project_is_made_around_a_model(folder, given, capsys):
    """A path is written whole, so that it means the model from inside the project; nothing is left to edit."""
    make_tiny_model(folder / "model")
    assert exit_code(["init", "demo", "--model", given]) == 0
    output = capsys.readouterr().out
    assert "nat fits " in output
    llm = yaml.safe_load((folder / "demo" / "config.yml").read_text())["llms"]["student"]
    assert llm["model"] == (given if "/" in given else str(folder / given))
    assert llm["max_tokens"] == 64
    assert not (folder / "demo" / "model").exists()
    assert "edit config.yml" not in output


@pytest.mark.parametrize("given", ["./lost", "owner/lost.gguf", "data/broken.gguf"])
def test_a_model_that_is_none_is_refused(folder, given, capsys):
    """The project is not written; a GGUF file is converted first, which is said, so its faults show now."""
    (folder / "data").mkdir()
    (folder / "data" / "broken.gguf").write_bytes(b"GGUF")
    assert exit_code(["init", "demo", "--model", given]) == 1
    shown = capsys.readouterr().err
    assert given.removeprefix("./") in shown
    assert ("converting" in shown) == given.endswith("gguf")
    assert not (folder / "demo").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["../x"], "'../x' cannot be the name of a project"),
        (["demo", "--framework", "landgraph"], "there is no framework 'landgraph'. Did you mean 'langgraph'?"),
    ],
)
def test_a_mistake_is_one_sentence(folder, arguments, message, capsys):
    """A refused project is exit code 1 with problem and remedy, and writes nothing."""
    assert exit_code(["init", *arguments]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert "→" in shown
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_to(monkeypatch, capsys):
    """The error names the folder and the remedy; nobody may write to /sys."""
    monkeypatch.chdir("/sys")
    assert exit_code(["init", "demo", "--no_model"]) == 1
    shown = capsys.readouterr().err
    assert "/sys" in shown
    assert "choose a folder that you may write to" in shown
