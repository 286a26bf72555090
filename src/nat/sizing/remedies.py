"""Settings under which training fits into a machine's memory."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from nat.sizing.forecast import FittingSettings
from nat.sizing.memory import DEFAULT_RANK, SHORTEST_ROW, Setup, Workload, predict
from nat.sizing.shape import ModelShape

_FEW_CHATS = 4
_SMALL_MICRO_BATCH = 512
_MOST = 6

_Change = tuple[str, Setup, Workload]


def remedies(
    shape: ModelShape, setup: Setup, workload: Workload, *, room: int | None, host: int | None = None
) -> tuple[FittingSettings, ...]:
    """The settings that fit into `room` bytes, and into `host` beside a GPU, those with fewest changes first."""
    needed = ((name, predict(shape, changed, work, free=room)) for name, changed, work in _changes(setup, workload))
    fitting = (FittingSettings(settings=name, bytes=each.total) for name, each in needed if each.fits(room, host))
    return tuple(islice(fitting, _MOST))


def _changes(setup: Setup, workload: Workload) -> Iterator[_Change]:
    """One setting after another, then LoRA with each of them, then several together."""
    yield from _single(setup, workload)
    adapters, lora = setup, ""
    if setup.full:
        adapters, lora = replace(setup, lora_rank=DEFAULT_RANK), f"lora: {{rank: {DEFAULT_RANK}}}"
        yield lora, adapters, workload
        yield from _after(lora, _single(adapters, workload))
    if adapters.embedded and not adapters.cpu and not adapters.load_in_4bit:
        adapters = replace(adapters, load_in_4bit=True)
        lora = f"lora: {{rank: {adapters.lora_rank}, load_in_4bit: true}}"
        yield lora, adapters, workload
    frugal = replace(adapters, gradient_checkpointing=True, micro_batch_tokens=_SMALL_MICRO_BATCH)
    several = f"gradient_checkpointing: true, micro_batch_tokens: {_SMALL_MICRO_BATCH}"
    several = f"{lora}, {several}" if lora else several
    yield several, frugal, workload
    yield from _after(several, _shorter(frugal, workload))


def _after(begin: str, changes: Iterator[_Change]) -> Iterator[_Change]:
    return ((f"{begin}, {name}", setup, workload) for name, setup, workload in changes)


def _single(setup: Setup, workload: Workload) -> Iterator[_Change]:
    smaller: dict[str, Any] = {
        "gradient_checkpointing": True,
        "micro_batch_tokens": min(setup.micro_batch_tokens, _SMALL_MICRO_BATCH),
        "dtype": "bfloat16",
    }
    if setup.embedded and workload.chats > _FEW_CHATS:
        smaller["max_num_seqs"] = min(setup.max_num_seqs, _FEW_CHATS)
    for name, value in smaller.items():
        if value != getattr(setup, name):
            yield f"{name}: {str(value).lower()}", replace(setup, **{name: value}), workload
    yield from _shorter(setup, workload)


def _shorter(setup: Setup, workload: Workload) -> Iterator[_Change]:
    """Contexts half as long, and half as long again."""
    length = workload.row_tokens // 2
    while length >= SHORTEST_ROW:
        yield f"max_seq_length: {length}", setup, workload.with_rows(length)
        length //= 2
