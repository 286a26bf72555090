"""What `nat fits` says of a model: the words, layers and memory of training it, found without its weights."""

from typing import Any

from pydantic import Field

from nat.sizing.forecast import PredictedMemory
from nat.wire.openai_responses import BrokenPrefix
from nat.wire.training import WireModel


class Refusal(WireModel):
    """Why a model cannot be trained, and what to do."""

    message: str
    hint: str | None = None


class Layers(WireModel):
    """Whether the embedded engine computes the model's layers."""

    refusal: Refusal | None = None
    tried: bool = False
    """Whether the model's class, with few small layers and random weights, was compared with transformers; else its
    configuration alone was judged."""
    untried: str | None = None
    """Why not."""


class Words(WireModel):
    """How calls and thinking of the model are read."""

    refusal: Refusal | None = None
    format: str | None = None
    """Where the format comes from, such as `found` in the chat template."""
    writes_calls: bool = False
    """Whether the chat template writes tool calls."""
    reads_thinking: bool = False
    misread: dict[str, str] = Field(default_factory=dict)
    """Kinds of answers that were misread, and how; those of the proof that every format goes through."""


class Conversation(WireModel):
    """A conversation that a script played through the server, in place of the model."""

    title: str
    answers: int
    rows: int | None = None
    """Rows of a rollout: 1 if each prompt begins with the exact tokens of the turn before. None if it failed."""
    drift: tuple[BrokenPrefix, ...] = ()
    """What the server reports for each prompt that does not."""
    problem: str | None = None


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
    revision: str | None = None
    family: str | None = None
    """The configuration's `model_type`."""
    architecture: str | None = None
    """The class of transformers."""
    num_parameters: int | None = None
    context: int | None = None
    """The model's own limit of tokens, or the one that was given."""
    layers: Layers
    words: Words
    """Empty if the configuration cannot be read."""
    conversations: tuple[Conversation, ...] = ()
    device: str
    """What the memory was predicted for."""
    room: int | None = None
    """Bytes of it that a run may take."""
    workload: str = ""
    """What was predicted."""
    ways: tuple[Way, ...] = ()
    block: dict[str, Any] | None = None
    """The LLM's block in the YAML with which training fits, all weights if possible; None if nothing fits."""

    @property
    def problems(self) -> list[str]:
        """What keeps the model from being trained; empty if it fits and is proven."""
        refusals = (self.layers.refusal, self.words.refusal)
        found = [each.message for each in refusals if each is not None]
        found += [f"{each.title}: {each.problem}" for each in self.conversations if each.problem]
        if self.ways and self.block is None:
            found.append(f"it does not fit: {self.ways[-1].problem}")
        if not self.ways and self.layers.refusal is None:
            found.append("its memory cannot be predicted: the configuration lacks the sizes of its layers")
        return list(dict.fromkeys(found))
