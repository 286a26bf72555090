"""Check that the command lines of the documentation are valid; only `nat init`, without a model, and `cd` are run."""

import os
import re
import shlex
from enum import Enum
from importlib.util import find_spec
from pathlib import Path, PurePath

import click

from e2e.doc_pages import ROOT, Block
from nat.cli.main import cli, exit_code

OTHER_PROGRAMS = frozenset(
    {"cd", "cp", "export", "git", "hf", "ls", "pip", "sqlite3", "source", "tail", "vllm"}
    | {"wandb", "mlflow", "trackio", "tensorboard", "comet"}
)
"""Programs that readers have or install; their arguments are not checked."""

_ASSIGNMENT = re.compile(r"\w+=.*")


def command_lines(block: Block) -> list[str]:
    """The commands of a block: all lines of `bash`; in `console`, those after a `$`."""
    text = block.text.replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    if block.language == "console":
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line for line in lines if line and not line.startswith("#")]


def check_command(line: str, folder: Path) -> None:
    """Raise AssertionError unless the command exists and has these options; `folder` holds the page's own files."""
    words = shlex.split(line, comments=True)
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    program, arguments = PurePath(words[0]).name, words[1:]
    if program == "nat":
        _check_nat(arguments, folder)
        if arguments[0] == "init":
            assert exit_code([*arguments, "--no_model"]) == 0
    elif program == "ray":
        _, started, command = line.partition(" -- ")
        assert not started or check_command(command, folder) is None
    elif program == "cd" and (places := [p for base in (Path(), ROOT) if (p := base / arguments[0]).is_dir()]):
        os.chdir(places[0])
    elif program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
        assert set(arguments) <= targets, f"make has no target {set(arguments) - targets}"
    elif program.startswith("python"):
        _check_python(arguments, folder)
    else:
        assert program in OTHER_PROGRAMS, f"{program!r} is neither ours nor one of {sorted(OTHER_PROGRAMS)}"


def _check_nat(arguments: list[str], folder: Path) -> None:
    command: click.Command = cli
    context, words = click.Context(cli, info_name="nat"), list(arguments)
    while True:
        values, words, _ = command.make_parser(context).parse_args(args=words)
        if "help" in values or "version" in values:
            return
        for option in command.params:
            if option.name != "config_file" or values.get("resume") is None:  # a run that goes on knows its own
                _check_value(option, values.get(str(option.name)), context, folder)
        if not isinstance(command, click.Group):
            assert not words, f"`nat` has no use for {words}"
            return
        assert words, f"`nat {' '.join(arguments)}` names no command"
        below = command.get_command(context, words[0])
        assert below is not None, f"`nat` has no command {words[0]!r}"
        command, context, words = below, click.Context(below, context, words[0]), words[1:]


def _check_value(option: click.Parameter, value: object, context: click.Context, folder: Path) -> None:
    if value is None or isinstance(value, Enum):  # click's word for an argument that was not given
        assert not option.required, f"{option.opts} is required"
    elif isinstance(option.type, click.Path):
        if option.type.exists and "latest" not in Path(str(value)).parts:  # a run of the reader's has made that
            assert any((base / str(value)).exists() for base in (Path(), folder, ROOT)), f"there is no file {value}"
    elif not getattr(option, "is_flag", False):
        option.type_cast_value(context, value)


def _check_python(arguments: list[str], folder: Path) -> None:
    assert arguments, "an interactive interpreter shows nothing"
    if arguments[0] == "-m":
        assert find_spec(arguments[1]) is not None or arguments[1] == "venv", f"there is no module {arguments[1]}"
    else:
        assert any((base / arguments[0]).is_file() for base in (folder, ROOT)), f"there is no script {arguments[0]}"
