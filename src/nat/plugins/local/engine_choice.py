"""Which engine suits a model better: one table, which `--dry_run` and docs/guides/vllm.md show.

Rows that are measured have their figures in docs/performance.md, section Sampler.
"""

from dataclasses import dataclass
from typing import Literal

from nat.errors import docs_page

Engine = Literal["embedded", "vllm"]
_BILLION = 10**9
_FLOAT32, _BFLOAT16 = ("float32",), ("bfloat16",)


@dataclass(frozen=True)
class EngineChoice:
    """The better engine for models of at least `num_parameters` weights, up to the next row of device and dtype."""

    device: Literal["cpu", "cuda"]
    dtypes: tuple[str, ...]
    num_parameters: int
    engine: Engine
    measured: bool
    reason: str


_ONE_COPY = "it shares the learner's weights, of which vLLM needs a second copy"
CHOICES = (
    EngineChoice(
        "cpu",
        _FLOAT32,
        0,
        "embedded",
        measured=True,
        reason="up to 135 million weights it gives half to twice vLLM's tokens per second, in less memory",
    ),
    EngineChoice("cpu", _FLOAT32, 300_000_000, "embedded", measured=False, reason=_ONE_COPY),
    EngineChoice(
        "cpu",
        _BFLOAT16,
        0,
        "embedded",
        measured=True,
        reason="up to 0.5 billion weights it takes less memory; measured beside vLLM on one processor only",
    ),
    EngineChoice("cpu", _BFLOAT16, 600_000_000, "embedded", measured=False, reason=_ONE_COPY),
    EngineChoice("cuda", _FLOAT32 + _BFLOAT16, 0, "embedded", measured=False, reason=_ONE_COPY),
    EngineChoice(
        "cuda",
        _FLOAT32 + _BFLOAT16,
        450_000_000,
        "vllm",
        measured=False,
        reason="it has kernels for many chats, and replays captured CUDA graphs",
    ),
)
"""The rows of a device and dtype begin at 0; larger models come later."""


def engine_choice(device: str, dtype: str, num_parameters: int) -> EngineChoice | None:
    """Find the row of a model; None for a device or dtype that the table does not have."""
    rows = (row for row in reversed(CHOICES) if row.device == device and dtype in row.dtypes)
    return next((row for row in rows if row.num_parameters <= num_parameters), None)


def engine_advice(engine: Engine, choice: EngineChoice, *, dtype: str, num_parameters: int) -> str:
    """Say in a sentence whether another engine than the chosen one suits the model better."""
    model = f"{size_text(num_parameters)} weights in {dtype} on {choice.device}"
    basis = f"measured, see {docs_page('performance.md')}" if choice.measured else "not measured"
    if choice.engine == engine:
        found = f"{engine} is the better engine for {model}"
    else:
        found = f"{engine} samples, but `engine: {choice.engine}` is better for {model}"
    return f"{found}: {choice.reason} ({basis})"


def size_text(num_parameters: int) -> str:
    """The number in words, such as `135 million` or `7.6 billion`."""
    if num_parameters >= _BILLION:
        return f"{num_parameters / _BILLION:.1f} billion"
    return f"{num_parameters / 1e6:.3g} million"
