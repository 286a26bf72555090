"""Play a recorded run: the files that a user would have, the model's server, and `nat finetune`."""

import asyncio
import io
import json
import logging
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from fakes.art_server import FakeArtServer
from fakes.backend_here import backend_here
from fakes.finetuning_project import blank_plot
from fakes.openai_server import OpenAIServer
from nat.cli.main import exit_code
from nat.finetuning.run_log import Event, RunLog, state_of
from nat.finetuning.runtime import run_finetuning
from nat.registry.catalog import pushed_catalog
from recorded.agents import Kept, register
from recorded.runs import RUNS, Recorded, usual

MODEL = Path(__file__).with_name("model")
"""The word model, whose weights are data: trained anew, they would differ in the last digits."""


def play(name: str, folder: Path) -> None:
    """Play the run in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setattr("nat.plugins.local.llm.running_backend", backend_here)
        patch.setattr("nat.cli.commands.finetune.run_finetuning", _without_plot)
        patch.setattr("nat.cli.steps.StepDisplay.check", lambda _lines: None)  # what a slow machine prints beside
        patch.setattr(RunLog, "append", _folded)
        with _one_thread():
            asyncio.run(_play(RUNS[name], folder))


def _folded(log: RunLog, event: Event, append=RunLog.append) -> None:
    """Append an event; the journal then gives the state that the run has."""
    append(log, event)
    assert state_of(log.journal, log.guards) == log.state, event


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in one order; the backend's own process would set this."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


async def _without_plot(*given: Any, **more: Any) -> Any:
    return await run_finetuning(*given, **more, plotter=blank_plot)


async def _play(recorded: Recorded, folder: Path) -> None:
    for split in ("train", "held_out"):
        rows = [{"id": f"{n}", "question": f"{split} {n}", "answer": "right"} for n in range(recorded.rows)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for file, text in recorded.files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)
    shutil.copytree(MODEL, folder / "model")
    if "$TEACHER" in str(recorded.config):
        make_teacher(folder / "teacher")
    async with _server(recorded) as known:
        tree = _with_values(changed(usual(known.get("$SERVER", ""), "model"), recorded.config), known)
        (folder / "config.yml").write_text(yaml.safe_dump(tree))
        console = io.StringIO()
        with pushed_catalog():
            register()
            await asyncio.to_thread(_command, console)


def _command(console: io.StringIO) -> None:
    with redirect_stdout(console), redirect_stderr(console):
        exit_code(["--log-level", "warning", "finetune", "--config_file=config.yml"])
    logging.getLogger().handlers.clear()


@asynccontextmanager
async def _server(recorded: Recorded) -> AsyncIterator[Mapping[str, Any]]:
    """The server of the run, as values of its configuration."""
    known: dict[str, Any] = {"$TEACHER": "teacher"}
    if recorded.script is None:
        yield known
    elif recorded.server == "art":
        async with FakeArtServer(recorded.script()) as art:
            yield known | {"$SERVER": art.inference.base_url, "$PORT": art.port}
    else:
        async with OpenAIServer(recorded.script(), fingerprint="tiny@0") as server:
            Kept.server = server
            yield known | {"$SERVER": server.base_url}


def changed(tree: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The tree with these values by dotted key; None removes a key."""
    for key, value in changes.items():
        *path, last = key.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
        if value is None:
            del place[last]
    return tree


def _with_values(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _with_values(part, known) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_values(part, known) for part in value]
    return known.get(value, value) if isinstance(value, str) else value


def make_teacher(folder: Path) -> None:
    """The word model with sharper probabilities."""
    shutil.copytree(MODEL, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = 2.0 * weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
