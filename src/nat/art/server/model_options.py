"""A client's options for its model: the adapter that it requests, and what has no effect here."""

from nat.art.wire import InternalModelConfig
from nat.backend.lora import LoraSettings
from nat.secrets import excerpt

_NAMES_CHARS = 1000
_KNOWN = {
    "init_args": {"max_seq_length"},
    "engine_args": set[str](),
    "peft_args": {"r", "lora_alpha"},
    "torchtune_args": set[str](),
}
"""The settings of each block that have an effect here; those of `trainer_args` all do."""


def lora_of(requested: InternalModelConfig, default: LoraSettings) -> LoraSettings:
    """The requested adapter; what the client leaves open is as the server was started."""
    peft = requested.peft_args
    if peft is None:
        return default
    return LoraSettings(rank=peft.r or default.rank, alpha=peft.lora_alpha or default.alpha)


def notes_on(requested: InternalModelConfig, *, limit: int) -> list[str]:
    """What has no effect on a server of one model of `limit` tokens, such as shares of a GPU; in whole sentences."""
    longest, blocks = requested.max_seq_length, requested.model_dump(exclude_none=True, include=set(_KNOWN))
    notes = []
    if longest is not None and longest > limit:
        notes.append(f"init_args.max_seq_length is {longest}; this model has {limit} tokens.")
    names = [
        f"{block}.{name}" for block, known in _KNOWN.items() for name in blocks.get(block, {}) if name not in known
    ]
    if names:
        notes.append(f"These have no effect on this server: {excerpt(', '.join(names), _NAMES_CHARS)}.")
    return notes
