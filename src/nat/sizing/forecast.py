"""What a backend says of a run before it begins, and what `nat fits` says of a model."""

from pydantic import Field

from nat.sizing.memory import Count, Device, Memory
from nat.wire.training import TrainingConfig, WireModel


class ForecastRequest(WireModel):
    """A run as it is planned."""

    config: TrainingConfig = TrainingConfig()
    num_rollouts: Count
    """Rollouts of an update."""
    chats: Count
    """At the same time."""


class TrainingForecast(WireModel):
    """The backend's answer."""

    device: Device
    dtype: str
    num_parameters: int
    learning_rate: float
    """Peak learning rate that the updates will use."""
    optimizer_steps: int
    """Of an update."""
    row_tokens: int
    """The rows that the memory is for."""
    chats: int
    """At the same time, likewise."""
    memory: list[Memory]
    """As configured, then of other ways to train; empty if the model's configuration lacks its sizes."""
    available: int | None
    """Bytes that the backend may take, what it has taken already included; None if the system does not tell."""
    checkpoint: int = 0
    """Bytes of the newest checkpoint, which has the optimizer's state; 0 if this is not known."""
    disk: int = 0
    """Bytes of all checkpoints and of the model at the end of a run; its rollouts are not counted."""
    place: str = ""
    """What runs where, in half a sentence."""

    @property
    def fits(self) -> bool:
        """False if training as configured takes more than there is."""
        return not self.memory or self.available is None or self.memory[0].total <= self.available


class FitReport(WireModel):
    """Whether a model can be trained, found from its configuration, tokenizer and chat template."""

    model: str
    revision: str | None = None
    family: str | None = None
    """The configuration's `model_type`; None if it cannot be read, and then nothing else is known."""
    architecture: str | None = None
    """The class of transformers."""
    num_parameters: int = 0
    context: int = 0
    """The model's own limit of tokens, or the one that was given."""
    format: str | None = None
    """Where the format of answers comes from; None if none is known."""
    reads_thinking: bool = False
    warning: str | None = None
    """Why calls may be lost; such a model trains agents without tools."""
    misread: dict[str, str] = Field(default_factory=dict)
    """Kinds of answers that the format misreads, and how."""
    left_out: list[str] = Field(default_factory=list)
    """Messages that the chat template does not write, so that the model never sees them."""
    chats: int = 0
    row_tokens: int = 0
    cached_bytes: int = 0
    """Of keys and values, per token."""
    ways: list[Memory] = Field(default_factory=list)
    """Of training; the first is the usual one."""
    available: int | None = None
    """Bytes that a run may take; None if the system does not tell."""
    problems: list[str] = Field(default_factory=list)
    """What keeps the model from being trained."""
