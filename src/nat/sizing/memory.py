"""How much memory serving and training a model takes, to some 20 %; no torch, so that plans and pages use it, too.

The one arithmetic of `nat fits`, of a plan, and of a backend that refuses what it cannot hold.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from nat.sizing import rules
from nat.sizing.shape import ModelShape
from nat.wire.training import GradientCheckpointing, WireModel

DType = Literal["float32", "bfloat16"]
Device = Literal["cpu", "cuda"]
Count = Annotated[int, Field(ge=1, le=10**15)]
DEFAULT_RANK = 16
"""Rank of LoRA where the configuration trains all weights, and a plan compares."""
USUAL_ROW = 4096
"""Tokens of the rows for which there should be memory; a lower `max_seq_length` needs less."""

_SIZES: dict[DType, int] = {"float32": 4, "bfloat16": 2}
_WIDE = 4
"""Bytes of a float32."""
_STATE = 8
"""Bytes of AdamW's two moments of a trained weight."""
_CODED = 0.56
"""Bytes of a weight in four bits, with its share of a scale."""
_PROCESS_BYTES = {"cpu": 440_000_000, "cuda": 630_000_000}
"""Python, torch and transformers without a model (measured), or a context on a GPU."""
_HEAP = {"full": 1.5, "LoRA": 2.2, "cuda": 1.1}
"""Memory of the activations in the process, per byte of their values: the C library cannot use again all that is freed
between them. LoRA frees more (measured)."""
_LOGIT_COPIES = 3


@dataclass(frozen=True)
class Setup:
    """What decides the memory besides the model's shape: how it is loaded, and how it is trained."""

    device: Device
    dtype: DType
    lora_rank: int | None = None
    load_in_4bit: bool = False
    embedded: bool = True
    """Whether this process samples; False if vLLM does."""
    trains: bool = True
    chats: int = 32
    """At the same time; by default as many as a project of `nat init` plays."""
    row_tokens: int = USUAL_ROW
    """The longest row, and conversation."""
    steps: int = 2
    """Optimizer steps of an update: from the second on, copies that could undo it lie beside a backward pass."""
    micro_batch_tokens: int = 4096
    gradient_checkpointing: GradientCheckpointing = "auto"
    has_reference: bool = False
    """Whether the update compares with the starting weights."""

    @property
    def title(self) -> str:
        way = "all weights" if self.lora_rank is None else f"LoRA, rank {self.lora_rank}"
        return f"{way}, {'4 bits' if self.load_in_4bit else self.dtype}"


class Memory(WireModel):
    """The most memory of a way to train; bytes."""

    title: str
    parts: dict[str, int]
    """By name, when the device holds most."""
    total: int

    def verdict(self, free: int | None) -> str:
        """Whether it fits, and by how much."""
        if free is None:
            return "the system does not tell what is free"
        left = free - self.total
        return f"fits, {bytes_text(left)} to spare" if left >= 0 else f"does not fit, {bytes_text(-left)} too much"


def memory_of(shape: ModelShape, setup: Setup, *, free: int | None = None) -> Memory:
    """The most memory of a run; `gradient_checkpointing: auto` recomputes activations if they do not fit `free`."""
    if setup.gradient_checkpointing != "auto":
        return _memory(shape, setup, free)
    kept = _memory(shape, replace(setup, gradient_checkpointing=False), free)
    if free is None or kept.total <= free:
        return kept
    return _memory(shape, replace(setup, gradient_checkpointing=True), free)


def _memory(shape: ModelShape, setup: Setup, free: int | None) -> Memory:
    width, full, cpu = _SIZES[setup.dtype], setup.lora_rank is None, setup.device == "cpu"
    base = shape.num_parameters * width - (shape.inside * (width - _CODED) if setup.load_in_4bit else 0)
    trained = shape.num_parameters if setup.lora_rank is None else shape.adapter_weights(setup.lora_rank)
    cache: float = setup.chats * setup.row_tokens * shape.cached * width
    if free is not None:
        cache = min(cache, max(0.0, free - base) / rules.FREE_SHARES[0])
    always = {
        "weights": base * (1 + (full and setup.has_reference)) + (0 if full else trained * _WIDE),
        "keys and values": cache if setup.embedded else 0,
        "process": _PROCESS_BYTES[setup.device],
    }
    sampler = shape.inside * width + shape.embedding * _WIDE if cpu and setup.embedded else 0
    reordered = {"sampler's reordered weights": sampler}
    if not setup.trains:
        moments = [always | reordered]
    else:
        masters = trained * _WIDE if full and width < _WIDE else 0
        always |= {"optimizer": trained * _STATE + masters, "gradients": trained * _WIDE}
        undo = {"copies to undo an update": trained * (_STATE + _WIDE)}
        backward = {"activations": _activations(shape, setup)} | ({} if full else reordered)
        moments = [always | backward | (undo if setup.steps > 1 else {}), always | undo | reordered]
    highest = max(moments, key=lambda parts: sum(parts.values()))
    parts = {name: int(count) for name, count in highest.items() if count}
    return Memory(title=setup.title, parts=parts, total=sum(parts.values()))


def _activations(shape: ModelShape, setup: Setup) -> float:
    """What a forward pass keeps for the backward pass, with the logits and the output layer's gradient."""
    width, full, cpu = _SIZES[setup.dtype], setup.lora_rank is None, setup.device == "cpu"
    most = min(setup.micro_batch_tokens, rules.micro_batch_tokens(shape.active, cpu=cpu) or setup.micro_batch_tokens)
    tokens = max(setup.row_tokens, most // setup.row_tokens * setup.row_tokens)
    layer = tokens * layer_bytes(shape, setup)
    kept = layer * shape.layers
    if setup.gradient_checkpointing:
        kept = layer + tokens * shape.hidden * width * shape.layers
    scored = tokens // 2
    logits = _LOGIT_COPIES * _WIDE * min(rules.logits_at_a_time(scored, cpu=cpu), scored * shape.vocabulary)
    head = 2 * shape.embedding * width if full else 0
    return kept * _HEAP["cuda" if not cpu else "full" if full else "LoRA"] + logits + head


def layer_bytes(shape: ModelShape, setup: Setup) -> int:
    """Bytes per token that a decoder layer keeps for its backward pass.

    Counted from transformers' Llama and Qwen: the inputs of norms (in fp32), products and activations. Under LoRA the
    norms keep less, and peft casts the input of each adapter to fp32.
    """
    width, hidden = _SIZES[setup.dtype], shape.hidden
    products = (2 * shape.queries + 2 * shape.keys + (4 if shape.gated else 2) * shape.active) * width
    if setup.lora_rank is None:
        return products + (6 * hidden * width if width == _WIDE else 2 * hidden * (_WIDE + 2 * width))
    low_rank = (6 + shape.gated) * setup.lora_rank * _WIDE
    cast = 0 if width == _WIDE else _WIDE * (hidden * (4 + shape.gated) + shape.queries + shape.dense)
    return products + low_rank + cast + (4 * hidden * width if width == _WIDE else 2 * hidden * _WIDE)


def ways_of(shape: ModelShape, setup: Setup, *, free: int | None) -> list[Memory]:
    """As it is set, then all weights and adapters, in both precisions and on a GPU in four bits."""
    rank = setup.lora_rank or DEFAULT_RANK
    plain = replace(setup, load_in_4bit=False)
    others = [replace(plain, lora_rank=lora, dtype=dtype) for lora in (None, rank) for dtype in _SIZES]
    if setup.device == "cuda":
        others.append(replace(setup, lora_rank=rank, dtype="bfloat16", load_in_4bit=True))
    return [memory_of(shape, each, free=free) for each in dict.fromkeys([setup, *others])]


def fitting_text(ways: Sequence[Memory], free: int) -> str:
    """The ways that fit, each with its memory."""
    if fitting := [f"{each.title} ({bytes_text(each.total)})" for each in ways if each.total <= free]:
        return f"these fit: {'; '.join(fitting)}"
    return "shorter rows need less (max_seq_length); else use a smaller model, or a machine with more memory"


def memory_rows(ways: Sequence[Memory], free: int | None, *, chats: int, row_tokens: int) -> Iterator[tuple[str, str]]:
    """The lines of a page about the ways to train, each with a label: the same for `nat fits` and for a plan."""
    amount = "an unknown amount" if free is None else bytes_text(free)
    load = f"{chats} chats at a time, rows of {row_tokens:,} tokens"
    yield "Memory", f"{amount} may be taken; {load}; predicted, to some 20 %"
    yield from (("", f"{way.title:<24}{bytes_text(way.total):>9}  {way.verdict(free)}") for way in ways)


def bytes_text(count: float) -> str:
    """Bytes in kB, MB or GB."""
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
