"""What `nat fits` says of a model: the words, layers and memory of training it, found without its weights."""

from typing import Any

from pydantic import Field

from nat.sizing.forecast import Speed
from nat.sizing.memory import PredictedMemory
from nat.wire.openai_responses import BrokenPrefix
from nat.wire.training import WireModel

JUDGING_SECONDS, JUDGING_BYTES, TIMING_SECONDS = 75.0, 3 * 2**29, 300.0
"""Most time and memory of a judgement, which takes some 10 s; what a model's folder asks for may have no end."""


class Layers(WireModel):
    """Whether the embedded engine computes the model's layers, as a small model of its class was compared to show."""

    refusal: str | None = None
    notice: str | None = None
    """Why they take the plain path, row by row; None if they take packed rows."""
    untried: str | None = None
    """Why no small model could be made, so that nothing was compared."""


class Reading(WireModel):
    """How calls and thinking of the model are read."""

    refusal: str | None = None
    warning: str | None = None
    """Why calls may be lost of a model whose chat template writes none; it trains agents without tools."""
    format: str | None = None
    """Where the format comes from."""
    writes_calls: bool = False
    """Whether the chat template writes tool calls."""
    reads_thinking: bool = False
    misread: dict[str, str] = Field(default_factory=dict)
    """Kinds of answers that the proof of the format misreads, and how."""


class Rehearsal(WireModel):
    """A conversation that a script played through the server, in place of the model."""

    title: str
    answers: int
    rows: int | None = None
    """Rows of a rollout: 1 if each prompt begins with the exact tokens of the turn before. None if it failed."""
    drift: tuple[BrokenPrefix, ...] = ()
    """What the server reports for each prompt that does not."""
    problem: str | None = None
    untried: str | None = None
    """Why it was not played."""


class Way(WireModel):
    """Training all weights or adapters, by prediction."""

    memory: PredictedMemory
    settings: dict[str, Any]
    """Of the LLM's block in the YAML."""
    problem: str | None = None
    """Why not even short rows fit; None if they do."""


class Certificate(WireModel):
    """What training a model would take, and what was proven of it."""

    model: str
    device: str
    """What the memory was predicted for."""
    workload: str
    """What was predicted."""
    room: int | None
    """Bytes that a run may take; None if the system does not tell."""
    revision: str | None = None
    family: str | None = None
    """The configuration's `model_type`; None if it cannot be read, and then nothing else is known."""
    architecture: str | None = None
    """The class of transformers."""
    num_parameters: int | None = None
    context: int | None = None
    """The model's own limit of tokens, or the one that was given."""
    layers: Layers
    words: Reading = Reading()
    conversations: tuple[Rehearsal, ...] = ()
    ways: tuple[Way, ...] = ()
    block: dict[str, Any] | None = None
    """The LLM's block in the YAML with which training fits, all weights if possible; None if nothing fits."""
    speed: Speed | None = None
    """Of training with this block here, predicted from that of some layers."""
    untimed: str | None = None
    """Why it is not known, though training fits."""

    @property
    def problems(self) -> list[str]:
        """What keeps the model from being trained; empty if it fits and is proven."""
        found = [self.layers.refusal, self.words.refusal]
        found += [f"{each.title}: {each.problem}" for each in self.conversations if each.problem]
        if self.family is not None and self.block is None:
            sizes = "the configuration lacks a size of its layers, or has one below 1"
            why = self.ways[-1].problem if self.ways else sizes
            found.append(f"it is not known to fit: {why}")
        return list(dict.fromkeys(filter(None, found)))
