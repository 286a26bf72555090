"""How fast each engine sampled on this machine, as `--dry_run` measured it; the user's cache remembers it."""

import json
import platform
from contextlib import suppress
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, PositiveFloat, PositiveInt, ValidationError

from nat.files import user_cache, write_text
from nat.sizing.forecast import Speed, TrainingForecast

Engine = Literal["embedded", "vllm"]
_TO_MEASURE = {
    "embedded": "repeat this with `engine: embedded` and without the keys of vLLM",
    "vllm": "repeat this with `engine: vllm`, see docs/recipes/vllm.md",
}


class EngineSpeed(BaseModel):
    """What one engine sampled."""

    day: date
    chats: PositiveInt
    prompt_tokens: int
    """Of each chat."""
    tokens_per_second: PositiveFloat

    @classmethod
    def of(cls, speed: Speed) -> Self:
        """What was measured today."""
        rate, day = speed.chats / speed.step_seconds, datetime.now(UTC).date()
        return cls(day=day, chats=speed.chats, prompt_tokens=speed.prompt_tokens, tokens_per_second=rate)

    def __str__(self) -> str:
        chats = "1 chat" if self.chats == 1 else f"{self.chats} chats"
        return f"{self.tokens_per_second:,.1f} tokens per second with {chats} (prompt tokens: {self.prompt_tokens:,})"


def engine_advice(engine: Engine, forecast: TrainingForecast, *, threads: int | None) -> str | None:
    """Remember the speed that was measured just now, and say what the other engine reached here; None without one.

    Speeds are those of a machine, a precision, a number of threads and a model, known by its number of weights.
    """
    if forecast.speed is None or not forecast.speed.chats:
        return None
    measured, other = EngineSpeed.of(forecast.speed), "vllm" if engine == "embedded" else "embedded"
    facts = [platform.node(), forecast.device, forecast.capacity, forecast.dtype, forecast.num_parameters, threads]
    stem = user_cache() / "speed" / sha256(json.dumps(facts).encode()).hexdigest()[:20]
    with suppress(OSError):  # a home that cannot be written has no memory
        write_text(stem.with_suffix(f".{engine}.json"), measured.model_dump_json())
    found = f"measured here: {engine} sampled {measured}"
    if (earlier := _remembered(stem.with_suffix(f".{other}.json"))) is None:
        return f"{found}; {other} was not measured here: {_TO_MEASURE[other]}"
    found += f", {other} {earlier} on {earlier.day}"
    if (earlier.chats, earlier.prompt_tokens) != (measured.chats, measured.prompt_tokens):
        return f"{found}; different loads cannot be compared: {_TO_MEASURE[other]}"
    ratio = measured.tokens_per_second / earlier.tokens_per_second
    return f"{found}; {engine} gave {ratio:.2f} times as many"


def _remembered(path: Path) -> EngineSpeed | None:
    try:
        return EngineSpeed.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
