"""The most memory that sampling and training a model take, part by part.

What each part is follows from the code of the backend, whose rules are in `rules.py`. Constants that say "measured"
were fitted to measurements; docs/evidence/speed.md compares predictions with them.

There are five moments at which memory can be highest: while the model is loaded, while a batch is sampled, in a
backward pass, in an optimizer step, and at the end of an update, when the copies that could undo it are there and the
sampler's weights are reordered anew.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, Literal

from pydantic import Field

from nat.sizing import rules
from nat.sizing.shape import ModelShape
from nat.wire.training import GradientCheckpointing, WireModel

DType = Literal["float32", "bfloat16"]
Device = Literal["cpu", "cuda"]
WEIGHTS, SAMPLER, GRADIENTS, OPTIMIZER, UNDO, ACTIVATIONS, CACHE, PROCESS = (
    "weights",
    "sampler's reordered weights",
    "gradients",
    "optimizer",
    "copies to undo an update",
    "activations",
    "keys and values",
    "process",
)
PARTS = (WEIGHTS, SAMPLER, GRADIENTS, OPTIMIZER, UNDO, ACTIVATIONS, CACHE, PROCESS)
DEFAULT_RANK = 16
"""Rank of LoRA where the configuration trains all weights, and a plan compares."""
MOST = 10**15
"""Of any count; floats tell such numbers apart."""
Count = Annotated[int, Field(ge=1, le=MOST)]
SHORTEST_ROW = 256
"""Tokens; a shorter context than that is no advice."""

_SIZES: Mapping[DType, int] = {"float32": 4, "bfloat16": 2}
_WIDE = 4
"""Bytes of a float32."""
_MB = 2**20
_PROCESS_BYTES = {"cpu": 420 * _MB, "cuda": 600 * _MB}
"""Python, torch and transformers without a model (measured), or a context on a GPU (not measured)."""
_PACKED_SLACK = {"float32": 1.4 * _MB, "bfloat16": 0.0}
"""Bytes that MKL takes beyond the weights of each layer that it reorders (measured)."""
_HEAP = {"full": 1.5, "LoRA": 2.2, "cuda": 1.1}
"""Memory of the activations in the process, per byte of their values: the C library cannot use again all that is freed
between them. LoRA frees more (measured); the figure of CUDA is not measured."""
_GROWN = 1.25
"""Slots of running sequences grow by half, so a quarter is unused on average."""
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
    max_num_seqs: int = 64
    kv_cache_mb: int | None = None
    prefix_cache_mb: int | None = None
    micro_batch_tokens: int = 4096
    gradient_checkpointing: GradientCheckpointing = "auto"
    has_reference: bool = False
    """Whether the update compares with the starting weights."""

    @property
    def cpu(self) -> bool:
        return self.device == "cpu"

    @property
    def full(self) -> bool:
        """Whether all weights are trained."""
        return self.lora_rank is None

    @property
    def title(self) -> str:
        if self.lora_rank is None:
            return "all weights"
        return f"{'QLoRA' if self.load_in_4bit else 'LoRA'}, rank {self.lora_rank}"


@dataclass(frozen=True)
class Workload:
    """The sizes of what is sampled and trained; a request that brings them is checked against the bounds."""

    chats: Count
    """Chats at the same time."""
    chat_tokens: Count
    """Prompt and answer of the longest call."""
    row_tokens: Count
    """The longest row of an update."""
    step_tokens: Count
    """All rows of an optimizer step."""
    sampled_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of a row's tokens that were sampled."""
    epoch_tokens: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Different tokens of an epoch's calls, shared beginnings once; what the prefix cache could hold."""

    def with_rows(self, length: int) -> "Workload":
        """The same with rows of this length, and chats of at most this length."""
        return replace(self, row_tokens=length, chat_tokens=min(self.chat_tokens, length))


class PredictedMemory(WireModel):
    """The memory of training all weights, or adapters; bytes."""

    title: str
    parts: dict[str, int]
    """By name, those that are not zero, when the device holds most."""
    total: int
    host: int = 0
    """On a GPU, what the host's memory holds besides."""
    longest_row: int | None = None
    """Tokens of the longest rows that fit into what is available."""

    def fits(self, room: int | None, host: int | None) -> bool:
        """Whether it is no more than the bytes of the device, and of the host beside a GPU; None is no bound."""
        return (room is None or self.total <= room) and (host is None or self.host <= host)


@dataclass(frozen=True)
class _Sizes:
    """Bytes of everything that may exist, each for one moment or for all of them."""

    shape: ModelShape
    setup: Setup
    workload: Workload
    free: float | None
    """Bytes that the device has for all of it; None if not known."""

    @property
    def trained(self) -> int:
        """Number of trained weights."""
        rank = self.setup.lora_rank
        return self.shape.num_parameters if rank is None else self.shape.adapter_weights(rank)

    @property
    def width(self) -> int:
        return _SIZES[self.setup.dtype]

    @property
    def base(self) -> float:
        """The weights of the model, without adapters."""
        shape, width = self.shape, self.width
        if not self.setup.load_in_4bit:
            return shape.num_parameters * width
        coded = shape.linear_weights * (0.5 + _WIDE / rules.WEIGHT_BLOCK)
        return coded + (shape.num_parameters - shape.linear_weights) * width

    @property
    def converted(self) -> float:
        """What loading takes of the host's memory; files in the model's own precision, bfloat16, are mapped."""
        return self.shape.num_parameters * self.width if self.width == _WIDE else 0

    @property
    def loaded(self) -> float:
        """What the device holds while the model is loaded."""
        return self.base

    @property
    def weights(self) -> float:
        adapters = 0 if self.setup.full else self.trained * _WIDE
        reference = self.shape.num_parameters * self.width if self.setup.full and self.setup.has_reference else 0
        return self.base + adapters + reference

    @property
    def packed(self) -> float:
        """The sampler's reordered weights, with the head in float32."""
        setup, shape = self.setup, self.shape
        if not setup.cpu or not setup.embedded:
            return 0
        head = shape.embedding * (_WIDE - self.width)
        return sum(shape.packed) * self.width + head + len(shape.packed) * _PACKED_SLACK[setup.dtype]

    @property
    def masters(self) -> float:
        """The fp32 copies of trained weights in bf16; adapters are in fp32 anyway."""
        return self.trained * _WIDE if self.setup.full and self.width < _WIDE else 0

    @property
    def moments(self) -> float:
        return 2 * _WIDE * self.trained

    @property
    def gradients(self) -> float:
        return self.trained * _WIDE

    @property
    def undo(self) -> float:
        return self.trained * _WIDE + self.moments

    @property
    def token_bytes(self) -> int:
        """Keys and values of a token."""
        return 2 * self.shape.keys * self.shape.layers * self.width

    @property
    def slots(self) -> float:
        """Keys and values of the running sequences."""
        if not self.setup.embedded:
            return 0
        wanted = min(self.workload.chats, self.setup.max_num_seqs) * self.workload.chat_tokens * self.token_bytes
        return min(_GROWN * wanted, self._bound(self.setup.kv_cache_mb, rules.FREE_SHARES[0]))

    @property
    def prefixes(self) -> float:
        """Keys and values of earlier prompts."""
        if not self.setup.embedded:
            return 0
        wanted = self.workload.epoch_tokens * self.token_bytes
        return min(wanted, self._bound(self.setup.prefix_cache_mb, rules.FREE_SHARES[1]))

    def _bound(self, megabytes: int | None, share: int) -> float:
        if megabytes is not None:
            return megabytes * _MB
        return float("inf") if self.free is None else max(0.0, self.free - self.base) / share

    @property
    def sampling_step(self) -> float:
        """Activations and logits of a sampling step."""
        shape, running = self.shape, min(self.workload.chats, self.setup.max_num_seqs)
        tokens = min(
            rules.sampling_step_tokens(shape.intermediate, cpu=self.setup.cpu), running * self.workload.chat_tokens
        )
        inside = tokens * (4 * shape.hidden + 2 * shape.queries + 3 * shape.intermediate) * self.width
        return inside + running * shape.vocabulary * _WIDE * _LOGIT_COPIES if self.setup.embedded else 0

    @property
    def micro_batch(self) -> int:
        """Tokens of the largest micro-batch: rows are added until there are enough."""
        row, step = self.workload.row_tokens, self.workload.step_tokens
        enough = rules.micro_batch_tokens(self.shape.intermediate, cpu=self.setup.cpu)
        most = min(self.setup.micro_batch_tokens, enough or self.setup.micro_batch_tokens)
        return max(row, min(step, most // max(1, row) * row))

    def activations(self, taken: float) -> float:
        """What a forward pass keeps for the backward pass, with `taken` bytes in use besides."""
        tokens, layers = self.micro_batch, self.shape.layers
        layer = tokens * layer_bytes(self.shape, self.setup)
        kept, again = layer * layers, tokens * self.shape.hidden * self.width
        choice = self.setup.gradient_checkpointing
        if choice is False:
            return kept
        least = again * layers + layer
        if choice is True:
            return least
        if self.free is None:
            return kept
        room = rules.CHECKPOINTED_SHARE * max(0.0, self.free - taken)
        return min(kept, max(least, room))

    def backward(self, taken: float) -> float:
        """What a forward and backward pass take, with `taken` bytes in use besides."""
        setup = self.setup
        heap = _HEAP["cuda" if not setup.cpu else "full" if setup.full else "LoRA"]
        return self.activations(taken) * heap + self.head

    @property
    def head(self) -> float:
        """Logits of the scored tokens, and the gradient of the output layer before it is added."""
        scored = max(1, round(self.micro_batch * self.workload.sampled_share))
        block = min(rules.logits_at_a_time(scored, cpu=self.setup.cpu), scored * self.shape.vocabulary)
        logits = _LOGIT_COPIES * block * _WIDE
        return logits + (self.shape.embedding * self.width * 2 if self.setup.full else 0)


def layer_bytes(shape: ModelShape, setup: Setup) -> int:
    """Bytes per token that a decoder layer keeps for its backward pass.

    Counted from transformers' Llama, Qwen2 and Qwen3: the inputs of norms (in fp32), products and activations. Under
    LoRA the norms keep less, and peft casts the input of each adapter to fp32. A token that goes to experts is copied
    for each of them that is trained.
    """
    width, hidden = _SIZES[setup.dtype], shape.hidden
    attention = (2 * shape.queries + 2 * shape.keys) * width
    active = round(shape.active_width)
    inner = (4 if shape.gated else 2) * active
    if shape.normed:
        attention += (shape.queries + shape.keys) * (_WIDE + width if setup.full else _WIDE)
    if setup.full:
        attention += round(shape.dispatched * hidden * width)
        norms = 6 * hidden * width if width == _WIDE else 2 * hidden * (_WIDE + 2 * width)
        return norms + attention + inner * width
    low_rank = round(len(shape.linears) / shape.layers * (setup.lora_rank or 0) * _WIDE)
    if width == _WIDE:
        return 4 * hidden * width + attention + inner * width + low_rank
    inputs = shape.experts.shared if shape.experts.count else shape.intermediate  # of layers that have adapters
    cast = _WIDE * (hidden * (4 + shape.gated) + shape.queries + inputs)
    norms = 2 * hidden * _WIDE
    return norms + cast + attention + (inner - active) * width + low_rank


def longest_row(shape: ModelShape, setup: Setup, workload: Workload, *, room: int, most: int) -> int | None:
    """The longest rows, of at most `most` tokens, that fit into `room` bytes; None if none of a useful length does."""

    def too_much(length: int) -> bool:
        return predict(shape, setup, workload.with_rows(length), free=room).total > room

    found = bisect_left(range(most + 1), x=True, lo=min(SHORTEST_ROW, most), key=too_much) - 1
    return found if found >= min(SHORTEST_ROW, most) else None


def predict(shape: ModelShape, setup: Setup, workload: Workload, *, free: float | None = None) -> PredictedMemory:
    """The most memory of a run; `free` is what its process may take of the device, on which some choices depend."""
    sizes = _Sizes(shape, setup, workload, free)
    process = _PROCESS_BYTES[setup.device]
    state = sizes.masters + sizes.moments
    always = {WEIGHTS: sizes.weights, OPTIMIZER: state, PROCESS: process}
    slots = {CACHE: sizes.slots}
    stays = {SAMPLER: 0 if setup.full else sizes.packed}
    undo = sizes.undo if setup.cpu else 0.0
    taken = sum(always.values()) + sizes.slots + stays[SAMPLER]
    gradients = sizes.gradients
    sampling = {**always, SAMPLER: sizes.packed, CACHE: sizes.slots + sizes.prefixes, ACTIVATIONS: sizes.sampling_step}
    learning = {**always, **slots, **stays, GRADIENTS: gradients, ACTIVATIONS: sizes.backward(taken)}
    ending = {**always, **slots, SAMPLER: sizes.packed, GRADIENTS: gradients, UNDO: undo}
    loading = {PROCESS: process, WEIGHTS: sizes.loaded}
    moments = (sampling, learning, ending, loading)
    highest = max(moments, key=lambda parts: sum(parts.values()))
    host = 0.0 if setup.cpu else max(sizes.converted, sizes.undo)
    parts = {name: ceil(highest[name]) for name in PARTS if highest.get(name)}
    return PredictedMemory(title=setup.title, parts=parts, total=sum(parts.values()), host=ceil(host))
