"""Translates the settings that a client requests for its model, and names those without effect here. Pure."""

from nat.art.wire import InternalModelConfig
from nat.backend.model import LoraSettings

_KNOWN = {
    "init_args": {"max_seq_length"},
    "engine_args": set[str](),
    "peft_args": {"r", "lora_alpha"},
    "torchtune_args": set[str](),
}


def lora_of(requested: InternalModelConfig | None, default: LoraSettings) -> LoraSettings:
    """The adapter that was requested; what is left open is as the server was started."""
    peft = None if requested is None else requested.peft_args
    if peft is None:
        return default
    return LoraSettings(rank=peft.r or default.rank, alpha=peft.lora_alpha or default.alpha)


def longest_row(requested: InternalModelConfig | None) -> int | None:
    """Most tokens of a conversation that is trained on; None if nothing was said."""
    init = None if requested is None else requested.init_args
    return None if init is None else init.max_seq_length


def without_effect(requested: InternalModelConfig | None) -> list[str]:
    """Settings that this server has no use for, such as shares of a GPU."""
    if requested is None:
        return []
    said = requested.model_dump(exclude_none=True, include=set(_KNOWN))
    return [f"{block}.{name}" for block, known in _KNOWN.items() for name in said.get(block, {}) if name not in known]
