"""The command line: errors as text, exit codes, plug-in commands."""

import os
import re
import subprocess
import sys

import pytest

from nat.cli.main import exit_code


def test_an_error_is_its_text_and_exit_code_1(tmp_path, capsys):
    """The user sees the error and its remedy without a traceback."""
    config = tmp_path / "config.yml"
    config.write_text("workflow: {_type: nobody_knows_this}")
    assert exit_code(["finetune", "--config_file", str(config)]) == 1
    shown = capsys.readouterr().err
    assert "nobody_knows_this" in shown
    assert "Traceback" not in shown


def test_a_wrong_option_is_exit_code_2(capsys):
    """Usage errors have the exit code 2 that shells expect."""
    assert exit_code(["finetune", "--no_such_option"]) == 2
    assert "No such option" in capsys.readouterr().err


def test_a_key_that_is_no_option_suggests_an_override(capsys):
    """Other trainers have an option per setting; here `-o` sets all of them, on the commands that have it."""
    assert exit_code(["finetune", "--num_epochs", "3"]) == 2
    assert "`-o finetuning.num_epochs 3`" in capsys.readouterr().err
    assert exit_code(["info", "--num_epochs"]) == 2
    assert "-o" not in capsys.readouterr().err


def test_unknown_commands_suggest_the_nearest(capsys):
    """An unknown command is a usage error that names the nearest command."""
    assert exit_code(["finetoon"]) == 2
    assert "No such command 'finetoon'. Did you mean 'finetune'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["-o", "finetuning.num_epochs=3", "--json"],
        ["-o", "finetuning.num_epochs=3", "--config_file", "c.yml"],
        ["-o", "finetuning.num_epochs=3"],
    ],
)
def test_an_override_with_an_equals_sign_is_an_error(arguments, capsys):
    """The error shows the right form; otherwise the next option would be taken for the value."""
    assert exit_code(["validate", *arguments]) == 2
    assert "`-o finetuning.num_epochs 3`" in capsys.readouterr().err


def test_interrupt_is_exit_code_130(monkeypatch, capsys):
    """Ctrl-C gives 130, the shells' exit code for SIGINT."""

    def interrupted(**_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nat.cli.main.cli.main", interrupted)
    assert exit_code(["info"]) == 130
    assert "Interrupted" in capsys.readouterr().err


def test_log_level_has_an_effect(tmp_path, capsys):
    """`--log-level error` hides what `info` shows."""
    config = tmp_path / "config.yml"
    config.write_text("general: {use_uvloop: true}")
    exit_code(["--log-level", "error", "validate", "--config_file", str(config)])
    quiet = capsys.readouterr().err
    exit_code(["--log-level", "info", "validate", "--config_file", str(config)])
    assert "use_uvloop" in capsys.readouterr().err
    assert "use_uvloop" not in quiet


def test_a_missing_extra_is_an_error_with_its_command(tmp_path):
    """Without torch, a `local` LLM is an error with the install command, before any process is started."""
    config = tmp_path / "config.yml"
    config.write_text("llms: {student: {_type: local, model: models/none}}")
    without_torch = "import sys; sys.modules['torch'] = None; from nat.cli.main import run_cli; run_cli()"
    shown = subprocess.run(
        [sys.executable, "-c", without_torch, "run", f"--config_file={config}", "--input=x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 1
    assert "llms.student: `_type: local` needs packages that are not installed: torch" in shown.stderr
    assert "pip install 'nat-finetuning-harness[local]'" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert "memory" not in shown.stderr


def test_an_error_cannot_control_the_terminal(tmp_path, capsys):
    """Errors quote names and texts of files, which may have escape sequences in them."""
    folder = tmp_path / "evil\x1b[2J\x9b31m"
    folder.mkdir()
    assert exit_code(["runs", "show", str(folder)]) == 1
    shown = capsys.readouterr().err
    assert (r"evil\x1b[2J\x9b31m" in shown, "\x1b[2J" in shown) == (True, False)


@pytest.mark.parametrize("command", [["init", "--no_model"], ["runs", "show"], ["runs", "export"], ["diagnose"]])
def test_a_name_that_is_too_long_is_an_error(command, tmp_path, monkeypatch, capsys):
    """The system refuses it wherever it is used; the user sees that, and no traceback."""
    monkeypatch.chdir(tmp_path)
    assert exit_code([*command, "a" * 300]) == 1
    assert re.search(r"aaa\S*: File name too long\n.*shorter name", capsys.readouterr().err)


PRINTS = """
import logging
import sys
import click
from nat.cli import main

class Group(main.LazyGroup):
    def get_command(self, ctx, cmd_name):
        return talk

@click.command()
def talk():
    print("1 printed")
    logging.getLogger("agent").warning("2 logged")
    print("3 printed")
    print("4 on stderr", file=sys.stderr)
    sys.stdout.write("5 written\\n")
    logging.getLogger("agent").warning("6 logged")

main.cli.__class__ = Group
main.run_cli()
"""


def test_a_closed_pipe_ends_nothing(tmp_path):
    """`nat finetune … | head` goes on: what the run and the agent print is dropped, and is no failure of theirs."""
    talk = "    for line in range(10_000): print(line); click.echo(line)\n    print('x', file=open('done', 'w'))\n"
    program = PRINTS[: PRINTS.index("    print(")] + talk + PRINTS[PRINTS.index("\nmain.cli.") :]
    command = [sys.executable, "-c", program, "talk"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert (process.returncode, (tmp_path / "done").exists()) == (0, True)


def test_prints_and_log_lines_come_in_order_through_a_pipe():
    """What an agent prints is not held back behind the log, which is unbuffered."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    shown = subprocess.run(
        [sys.executable, "-c", PRINTS, "talk"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        env=environment,
    )
    numbers = re.findall(r"\b([1-6]) (?:printed|logged|on stderr|written)", shown.stdout)
    assert numbers == ["1", "2", "3", "4", "5", "6"]
