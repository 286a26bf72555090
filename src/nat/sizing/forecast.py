"""What a backend says of a run before it begins: the memory it will take, and how fast it is."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from nat.sizing.memory import Count, PredictedMemory, Workload
from nat.wire.training import TrainingConfig, WireModel


class ForecastRequest(WireModel):
    """A run as it is planned."""

    config: TrainingConfig = TrainingConfig()
    workload: Workload
    num_rollouts: Count
    """Rollouts of an update."""
    probe_seconds: float = Field(default=0.0, ge=0, le=60)
    """Bound of the time that measuring the speed takes; 0 measures nothing."""


class FittingSettings(WireModel):
    """Settings with which training fits, as they stand in the YAML, and its bytes."""

    settings: str
    bytes: int


class Speed(WireModel):
    """What the backend measured, with no effect on weights or files."""

    chats: int = 0
    """Chats that were sampled at the same time; 0 if none had an answer in time."""
    prompt_tokens: int = 0
    """Of each of these chats."""
    prompt_tokens_per_second: float = 0.0
    step_seconds: float = 0.0
    """Of a step that gives each of these chats a token."""
    doubled_step_seconds: float = 0.0
    """The same with twice as many chats; 0 if it was not measured."""
    trained_tokens: int
    """Tokens of the pass that was measured."""
    trained_tokens_per_second: float
    """Forwards and backwards."""
    optimizer_seconds: float
    """Of an optimizer step on all trained weights."""


class Card(WireModel):
    """Another GPU that trains; bytes."""

    needs: int
    """By prediction."""
    room: int


class TrainingForecast(WireModel):
    """The backend's answer; without sizes in the model's configuration there is no memory."""

    device: Literal["cpu", "cuda"]
    dtype: str
    num_parameters: int
    learning_rate: float
    """Peak learning rate that the updates will use."""
    optimizer_steps: int
    """Of an update."""
    memory: list[PredictedMemory]
    """As configured, then with all weights or adapters instead."""
    available: int | None
    """Bytes that the backend may take, what it has taken already included; None if the system does not tell."""
    capacity: int | None
    """Bytes of the whole machine, or of its GPU."""
    host_available: int | None = None
    """Beside a GPU, likewise of the host's memory; None on a CPU."""
    place: str = "cpu"
    """The device that `memory` is about: a CPU, or the first GPU that trains."""
    cards: dict[str, Card] = Field(default_factory=dict)
    """The GPUs that train beside it, by name."""
    places: tuple[str, ...] = ()
    """What runs where, in sentences."""
    fitting: tuple[FittingSettings, ...] = ()
    """Other settings that fit, if these do not."""
    speed: Speed | None = None

    @property
    def fits(self) -> bool:
        """False if the prediction is more than the backend may take, of a device or of the host beside a GPU."""
        return not self.memory or (self.memory[0].fits(self.available, self.host_available) and not self.full_cards)

    @property
    def all_cards(self) -> dict[str, Card]:
        """Also the device that `memory` is about."""
        needs = self.memory[0].total if self.memory else 0
        room = needs if self.capacity is None else self.capacity
        return {self.place: Card(needs=needs, room=room), **self.cards}

    @property
    def full_cards(self) -> list[str]:
        """The further cards that have less than training takes there."""
        return [name for name, card in self.cards.items() if card.needs > card.room]

    @property
    def impossible(self) -> bool:
        """True if it is more than the machine has."""
        return bool(self.memory) and not self.memory[0].fits(self.capacity, None)


def misfit_text(forecast: TrainingForecast) -> str:
    """Why training does not fit, in a sentence."""
    needed, room = forecast.memory[0], forecast.capacity if forecast.impossible else forecast.available
    begin = f"training {needed.title} takes"
    for card in forecast.full_cards:
        needs, has = (bytes_text(size) for size in (forecast.cards[card].needs, forecast.cards[card].room))
        return f"{begin} {needs} on {card}, by prediction, which has {has}"
    if room is None or needed.total <= room:
        assert forecast.host_available is not None, "without it nothing is known not to fit"
        return (
            f"{begin} {bytes_text(needed.host)} of the host's memory beside the GPU, by prediction, for copies that "
            f"could undo an update, moved moments, or loading; {bytes_text(forecast.host_available)} are free for it"
        )
    where = "the GPU" if forecast.device == "cuda" else "the machine"
    return (
        f"{begin} {bytes_text(needed.total)} at its peak, by prediction; {where} has "
        f"{bytes_text(room)}{'' if forecast.impossible else ' free for it'}: "
        + ", ".join(f"{name} {bytes_text(count)}" for name, count in needed.parts.items())
    )


def fitting_text(fitting: Sequence[FittingSettings]) -> str:
    """The settings that fit, each with its memory."""
    if not fitting:
        return "no setting makes it fit: use a smaller model, or a machine with more memory"
    return "these fit: " + "; ".join(f"{each.settings} ({bytes_text(each.bytes)})" for each in fitting)


def speed_text(speed: Speed) -> str:
    """The tokens per second of prompts, answers and updates."""
    rates = f"{speed.trained_tokens_per_second:,.0f} trained tokens per second"
    if not speed.chats:
        return rates
    chats, sampled = "1 chat" if speed.chats == 1 else f"{speed.chats} chats", speed.chats / speed.step_seconds
    return f"with {chats}: {speed.prompt_tokens_per_second:,.0f} prompt and {sampled:,.0f} sampled tokens, {rates}"


def bytes_text(count: float) -> str:
    """Bytes in MB, or from one GB on in GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
