"""Mistakes of users as data: what they change in a working project, the command, and the message as it stands.

`project/` works. Each YAML beside this file holds mistakes of one class:

command: nat validate --config_file config.yml    # of each mistake that names no other
mistakes:
- mistake: what the user did, in words
  set: {finetuning.num_epochs: many}      # keys of config.yml
  unset: [workflow.llm]                   # likewise, taken out
  change: {"[agent.py]": agent.py}        # a text that config.yml or agent.py has once, and its replacement
  write: {data/train.jsonl: ""}           # whole files
  remove: [models/student]                # files and folders
  environment: {TEMPERATURE: hot}         # SERVER and PORT: see `server.py`, and a port that is taken
  message: what the command prints, standard output first
"""

import gc
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import yaml
from huggingface_hub import constants as hub
from pydantic import BaseModel, ConfigDict

from fakes.process_state import process_state_kept
from mistakes.server import model_server
from nat.cli.main import exit_code
from nat.errors import describe_error
from nat.registry import discovery
from nat.registry.catalog import Catalog, pushed_catalog

HERE = Path(__file__).parent
PROJECT = HERE / "project"
UNCAUGHT = "Traceback (most recent call last): … "
SHOWN_AS = "/home/me/project"
"""The folder of the project in messages."""
_OF_THIS_MACHINE = {
    r"^[\d-]+ [\d:,]+ - (\w+) +- \S+ - ": r"\1: ",
    r"^INFO: .*\n": "",
    r"^[a-z].*( …| so far)\n": "",  # progress, by the seconds that a step takes here
    r"\b\d+\.\d\ds\b": "0.00s",
    r"/\S+/(src/nat|site-packages|lib/python3)(\.\d+)?/": r".../\1/",
    r"(\.\.\./\S+), line \d+": r"\1",
}
"""What differs between two machines or two runs, by pattern; the log's lines keep their level and text."""


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Mistake(Record):
    mistake: str
    set: dict[str, Any] = {}
    unset: list[str] = []
    change: dict[str, str] = {}
    write: dict[str, str] = {}
    remove: list[str] = []
    environment: dict[str, str] = {}
    command: str | None = None
    message: str = ""

    def made_in(self, folder: Path) -> None:
        """A copy of the working project with this mistake."""
        shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
        sources = {name: (folder / name).read_text() for name in ("config.yml", "agent.py")}
        for old, new in self.change.items():
            (name,) = [name for name, text in sources.items() if text.count(old) == 1]
            sources[name] = sources[name].replace(old, new)
        if self.set or self.unset:
            tree = _changed(yaml.safe_load(sources["config.yml"]), self.set, self.unset)
            sources["config.yml"] = yaml.safe_dump(tree, sort_keys=False)
        for name, text in sources.items():
            (folder / name).write_text(text)
        for name, content in self.write.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content.encode("latin-1" if "latin-1" in name else "utf-8"))
        for name in self.remove:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _changed(tree: Any, values: dict[str, Any], without: list[str]) -> Any:
    """The configuration with these values at dotted keys, and without those keys."""
    for dotted in (*values, *without):
        *above, key = dotted.split(".")
        node = tree
        for each in above:
            node = node.setdefault(each, {})
        node.pop(key, None)
        if dotted in values:
            node[key] = values[dotted]
    return tree


class Mistakes(Record):
    command: str
    mistakes: list[Mistake]


def files() -> list[Path]:
    return sorted(HERE.glob("*.yml"))


def read(file: Path) -> Mistakes:
    return Mistakes.model_validate(yaml.safe_load(file.read_text()))


def message_of(mistake: Mistake, command: str, folder: Path) -> str:
    """Make the mistake in an empty folder and run the command there, in this process: what it prints.

    The exit code is added where the command did not fail. Ports and paths of this machine are replaced.
    """
    mistake.made_in(folder)
    needs_server = "SERVER" in str(mistake.set)
    with (
        model_server() if needs_server else nullcontext("SERVER") as server,
        _taken_port(mistake.command or command) as (line, port),
    ):
        config = folder / "config.yml"
        config.write_text(config.read_text().replace("SERVER", server))
        printed = StringIO()
        with _here(folder, mistake.environment), redirect_stdout(printed), redirect_stderr(printed):
            code = _run(shlex.split(line)[1:])
    text = printed.getvalue().replace(port or "PORT", "PORT").replace(server, "SERVER")
    text = text.replace(str(folder.resolve()), SHOWN_AS).replace(str(folder), SHOWN_AS)
    for pattern, words in _OF_THIS_MACHINE.items():
        text = re.sub(pattern, words, text, flags=re.MULTILINE)
    return text.strip() + ("" if code else "\n(exit code 0)")


def _run(arguments: list[str]) -> int:
    """The exit code; an exception that leaves the command is printed as its last line, as Python would."""
    with catch_warnings(category=RuntimeWarning, action="ignore"):
        try:
            code = exit_code(arguments)
        except Exception as error:  # noqa: BLE001 - what a user sees
            print(f"{UNCAUGHT}{describe_error(error)}")
            code = 1
        gc.collect(0)  # an agent's coroutine that is never awaited warns when it goes
    return code


def _forget_others(catalog: Catalog) -> None:
    """Leave the components of `nat` alone: other tests of this process may have registered theirs."""
    for registry in catalog.components.values():
        ours = {
            name: each for name, each in registry._entries.items() if each.config_type.__module__.startswith("nat.")
        }
        registry._entries = ours


@contextmanager
def _here(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run in the folder as a fresh process would, whose only variables are these."""
    before, cwd, path, modules = dict(os.environ), Path.cwd(), list(sys.path), set(sys.modules)
    offline, cache = hub.HF_HUB_OFFLINE, hub.HF_HUB_CACHE
    hub.HF_HUB_OFFLINE, hub.HF_HUB_CACHE = True, str(folder / "hub")
    failures, imported = list(discovery.failures), set(discovery._imported)
    os.environ.clear()
    os.environ.update({"PATH": before["PATH"], "HOME": str(folder)} | environment)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        with process_state_kept(), pushed_catalog() as catalog:
            _forget_others(catalog)
            yield
    finally:
        hub.HF_HUB_OFFLINE, hub.HF_HUB_CACHE = offline, cache
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(before)
        sys.path[:] = path
        discovery.failures[:] = failures
        discovery._imported.clear()
        discovery._imported.update(imported)
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]


@contextmanager
def _taken_port(command: str) -> Iterator[tuple[str, str]]:
    """The command with a port in the place of PORT, at which another program listens."""
    if "PORT" not in command:
        yield command, ""
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        yield command.replace("PORT", port), port


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _Dumper.represent_text)


def text_of(mistakes: Mistakes, comment: str) -> str:
    """The YAML of a file, below its comment."""
    blocks = [
        yaml.dump(
            [each.model_dump(exclude_defaults=True)], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120
        )
        for each in mistakes.mistakes
    ]
    return f"{comment}command: {mistakes.command}\nmistakes:\n" + "\n".join(blocks)


def accept(file: Path, folder: Path) -> None:
    """Write what is printed today as the message of each mistake."""
    mistakes = read(file)
    for number, mistake in enumerate(mistakes.mistakes):
        place = folder / f"{file.stem}_{number}"
        place.mkdir()
        mistake.message = message_of(mistake, mistakes.command, place)
    comment = "".join(line for line in file.read_text().splitlines(keepends=True) if line.startswith("#"))
    file.write_text(text_of(mistakes, comment))
