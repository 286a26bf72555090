"""Which two models a run's chat has, and a process of the embedded backend for each of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from pydantic import ValidationError

from nat.errors import BackendError, BackendUnreachable, JournalError, ModelUnavailable, describe_error, findings_of
from nat.finetuning.best_model import BEST_MODEL, LAST_MODEL
from nat.http.sse import EventReader
from nat.hub import cached_folder, local_model
from nat.plugins.local.client import BackendClient
from nat.plugins.local.process import running_backend
from nat.reports.overview import trained_llm
from nat.runs.journal import Journal
from nat.runs.recorded_config import config_of
from nat.runs.records import Phase
from nat.wire.extras import install_hint, missing_packages
from nat.wire.model_folder import is_model
from nat.wire.serving import BEST_CHECKPOINT, CHECKPOINTS, LLMS, LOCAL_PACKAGES, NEWEST_CHECKPOINT, ServeOptions

MOST_TOKENS = 512
"""New tokens of an answer."""
_MOST_CHARS = 100_000
"""Of an answer: in a tokenizer of others, a single token may be a text of megabytes."""
MOST_TEMPERATURE = 2.0
_START_SECONDS = 300.0
_SAME = ("dtype", "max_seq_length", "chat_template_kwargs", "response_template")
"""Options of the run's LLM that decide what a model answers."""


@dataclass(frozen=True)
class Side:
    """One of the two models."""

    title: str
    what: str
    """Which weights these are, in words."""
    model: str
    """Its folder, or its name on the Hub."""
    options: Mapping[str, Any]
    revision: str | None = None


@dataclass(frozen=True)
class ModelPair:
    """Both models, and how the run called the trained one."""

    sides: Sequence[Side]
    system: str
    """The first system message of a recorded rollout; empty if there is none."""
    temperature: float


@dataclass
class Reply:
    """What one model answers, as far as it has come."""

    title: str
    text: str = ""
    thinking: str = ""
    note: str = ""
    """Why it ends early, or why there is none."""


Speaker = Callable[[Reply, Sequence[Mapping[str, str]], float], Awaitable[None]]
"""A loaded model: writes its answer to these messages at a temperature into the reply; NatError if it fails."""
Serve = Callable[[Side], AbstractAsyncContextManager[Speaker]]


def pair_of(journal: Journal) -> ModelPair:
    """The model that the run started from, and its best weights, or else its newest.

    Raises:
        JournalError: the run has no weights that could be loaded; with what keeps some.

    """
    block = trained_llm(config_of(journal.info().config_text))
    start, kept, temperature = block.get("model"), _kept(journal), block.get("temperature")
    if block.get("_type") != "local" or not isinstance(start, str):
        raise JournalError(
            "the weights of this run are with the server that trained them",
            hint="train an LLM of `_type: local`, whose checkpoints are kept in the run's folder",
        )
    if kept is None and (journal.run_dir / LLMS).is_dir():
        raise JournalError(
            f"this run trains several models, of which one alone is no agent; they are in {journal.run_dir / LLMS}",
            hint="`nat serve` plays the workflow with them",
        )
    if kept is None:
        raise JournalError(
            f"{journal.run_dir} has no trained weights: no {CHECKPOINTS} and no {BEST_MODEL}",
            hint="the LLM's `save_every` sets after how many updates a checkpoint is kept; `finetuning.export_best: "
            "true` also writes the best weights when the run ends",
        )
    folder, what = kept
    options = {key: block[key] for key in _SAME if block.get(key) is not None}
    revision = None if block.get("revision") is None else str(block["revision"])
    sides = (
        Side("Untrained", f"the model that the run started from, {start}", start, options, revision),
        Side("Trained", f"{what}, {folder.relative_to(journal.run_dir.resolve())}", str(folder), options),
    )
    if not isinstance(temperature, int | float) or not 0 <= temperature <= MOST_TEMPERATURE:
        temperature = 1.0
    return ModelPair(sides, _system_message(journal), temperature)


def _kept(journal: Journal) -> tuple[Path, str] | None:
    """The folder of the run's weights, and what they are."""
    best, checkpoints, own = journal.best(), journal.run_dir / CHECKPOINTS, journal.run_dir.resolve()
    of_best = "the best weights" if best is None else f"the best weights ({best})"
    of_newest = "the newest weights" + (", as none scored higher than the untrained ones" if best else "")
    places = {
        journal.run_dir / BEST_MODEL: of_best,
        checkpoints / BEST_CHECKPOINT: of_best,
        journal.run_dir / LAST_MODEL: of_newest,
        checkpoints / NEWEST_CHECKPOINT: of_newest,
    }
    for folder, what in places.items():
        # The newest checkpoint is a link, which moves while a run trains; one out of the folder is none of the run's.
        found = folder.resolve()
        if is_model(folder) and found.parent == folder.parent.resolve() and found.is_relative_to(own):
            return found, what
    return None


def _system_message(journal: Journal) -> str:
    for epoch in journal.played(Phase.TRAIN)[-1:]:
        for record in journal.rollouts(Phase.TRAIN, epoch, journal.examples(Phase.TRAIN, epoch)[0][0]):
            for message in record.messages:
                if message.get("role") == "system" and isinstance(message.get("content"), str):
                    return str(message["content"])
    return ""


@asynccontextmanager
async def served(side: Side) -> AsyncIterator[Speaker]:
    """Load a model in a process of its own, which ends with the block, and with this process however that ends.

    Raises:
        BackendError: it cannot be loaded; with the reason.

    """
    if missing := missing_packages(LOCAL_PACKAGES):
        raise ModelUnavailable(f"packages are not installed: {', '.join(missing)}", hint=install_hint("local"))
    folder = await asyncio.to_thread(_folder, side)
    try:
        options = ServeOptions(model=folder, served_model_name=side.title, port=0, max_num_seqs=1, **side.options)
    except ValidationError as error:
        raise BackendError(f"an option of the run's LLM is not valid here: {findings_of(error)[0]}") from error
    with TemporaryDirectory(prefix="nat-chat-") as scratch:
        log = Path(scratch) / "backend.log"
        async with (
            running_backend(options, log_path=log, startup_timeout=_START_SECONDS) as process,
            BackendClient(process.base_url, process.api_key) as client,
        ):

            async def speak(reply: Reply, messages: Sequence[Mapping[str, str]], temperature: float) -> None:
                try:
                    await _answer(client, reply, messages, temperature)
                except (BackendUnreachable, httpx.HTTPError) as error:
                    process.check()
                    raise BackendUnreachable(f"the model does not answer: {describe_error(error)}") from error

            yield speak


def _folder(side: Side) -> Path:
    """The model's folder; nothing is downloaded, since a journal may be of others."""
    if Path(side.model).exists():
        return local_model(side.model).folder
    if (found := cached_folder(side.model, side.revision)) is None:
        raise ModelUnavailable(
            f"{side.model} is neither a folder here ({Path.cwd()}) nor in the cache of the Hugging Face Hub",
            hint="start `nat ui` in the folder where the run was started, or put the model back in its place",
        )
    return found


async def _answer(
    client: BackendClient, reply: Reply, messages: Sequence[Mapping[str, str]], temperature: float
) -> None:
    """Write at most `MOST_TOKENS`, which are counted here: a server refuses a limit that is beyond its context."""
    body = {"model": reply.title, "messages": messages, "temperature": temperature}
    stream = {"stream": True, "return_token_ids": True}
    response = await client.send("POST", "/v1/chat/completions", json={**body, **stream}, stream=True)
    reader, num_tokens = EventReader(), 0
    async with aclosing(response):
        async for part in response.aiter_bytes():
            for event in reader.feed(part):
                if "error" in event:
                    raise BackendError(str(event["error"]["message"]))
                (choice,) = event["choices"]
                reply.text += choice["delta"].get("content") or ""
                reply.thinking += choice["delta"].get("reasoning_content") or ""
                num_tokens += len(choice.get("token_ids") or ())
                if choice["finish_reason"] == "length":
                    reply.note = "cut at the end of the model's context"
                if (over := len(reply.text) + len(reply.thinking) - _MOST_CHARS) > 0:
                    reply.text, reply.thinking = reply.text[:_MOST_CHARS], reply.thinking[:_MOST_CHARS]
                    reply.note = f"cut before its last {over} characters"
                    return
                if choice["finish_reason"] is None and num_tokens >= MOST_TOKENS:
                    reply.note = f"cut after {num_tokens} tokens"
                    return
