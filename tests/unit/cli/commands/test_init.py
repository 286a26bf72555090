from pathlib import Path

import pytest

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
        "pytest",
        *(f"nat {command} --config_file=config.yml" for command in ("probe", "finetune")),
    ]
    assert (folder / "demo" / "config.yml").is_file()


def test_a_framework_that_is_not_installed_is_named(folder, capsys):
    """The project is written, and the first line says how to install what it needs."""
    assert exit_code(["init", "demo", "--no_model", "--framework", "smolagents"]) == 0
    assert "pip install 'nat-finetuning-harness[local,smolagents]'" in capsys.readouterr().out
    assert "smolagents" in (folder / "demo" / "agent.py").read_text()


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
