"""Settings under which training fits into a machine's memory."""

from collections.abc import Iterator
from dataclasses import replace

from nat.sizing.forecast import FittingSettings
from nat.sizing.memory import DEFAULT_RANK, SHORTEST_ROW, Setup, Workload, predict
from nat.sizing.shape import ModelShape

_FEW_CHATS = 4
_SMALL_MICRO_BATCH = 512
_MOST = 6


_Change = tuple[str, Setup, Workload]


def remedies(
    shape: ModelShape, setup: Setup, workload: Workload, *, room: int, host: int | None = None
) -> tuple[FittingSettings, ...]:
    """The settings that fit into `room` bytes, and into `host` beside a GPU, those with fewest changes first."""
    fitting: list[FittingSettings] = []
    for name, changed, work in _changes(setup, workload):
        needed = predict(shape, changed, work, free=room)
        if needed.total <= room and (host is None or needed.host <= host):
            fitting.append(FittingSettings(settings=name, bytes=needed.total))
    return tuple(fitting[:_MOST])


def _changes(setup: Setup, workload: Workload) -> Iterator[_Change]:
    """One setting after another, then LoRA with each of them, then several together."""
    yield from _single(setup, workload)
    adapters = setup
    begin = ""
    if setup.full:
        adapters, begin = replace(setup, lora_rank=DEFAULT_RANK), f"lora: {{rank: {DEFAULT_RANK}}}"
        yield begin, adapters, workload
        for name, changed, work in _single(adapters, workload):
            yield f"{begin}, {name}", changed, work
    if adapters.embedded and not adapters.load_in_4bit:
        adapters = replace(adapters, load_in_4bit=True)
        begin = f"lora: {{rank: {adapters.lora_rank}, load_in_4bit: true}}"
        yield begin, adapters, workload
    frugal = replace(adapters, gradient_checkpointing=True, micro_batch_tokens=_SMALL_MICRO_BATCH)
    added = f"gradient_checkpointing: true, micro_batch_tokens: {_SMALL_MICRO_BATCH}"
    yield f"{begin}, {added}" if begin else added, frugal, workload
    for name, changed, work in _shorter(frugal, workload):
        yield f"{begin}, {added}, {name}" if begin else f"{added}, {name}", changed, work


def _single(setup: Setup, workload: Workload) -> Iterator[_Change]:
    if setup.gradient_checkpointing is not True:
        yield "gradient_checkpointing: true", replace(setup, gradient_checkpointing=True), workload
    if setup.micro_batch_tokens > _SMALL_MICRO_BATCH:
        smaller = replace(setup, micro_batch_tokens=_SMALL_MICRO_BATCH)
        yield f"micro_batch_tokens: {_SMALL_MICRO_BATCH}", smaller, workload
    if setup.optimizer_bits != 8:  # noqa: PLR2004 - bits
        yield "optimizer_bits: 8", replace(setup, optimizer_bits=8), workload
    if not setup.cpu and not setup.optimizer_offload:
        yield "optimizer_offload: true", replace(setup, optimizer_offload=True), workload
    if setup.dtype == "float32":
        yield "dtype: bfloat16", replace(setup, dtype="bfloat16"), workload
    if setup.embedded and min(setup.max_num_seqs, workload.chats) > _FEW_CHATS:
        yield f"max_num_seqs: {_FEW_CHATS}", replace(setup, max_num_seqs=_FEW_CHATS), workload
    yield from _shorter(setup, workload)


def _shorter(setup: Setup, workload: Workload) -> Iterator[_Change]:
    """Contexts half as long, and half as long again."""
    length = workload.row_tokens // 2
    while length >= SHORTEST_ROW:
        yield f"max_seq_length: {length}", setup, workload.with_rows(length)
        length //= 2
