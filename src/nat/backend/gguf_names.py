"""What a GGUF file says in llama.cpp's names, and transformers in others: how text is split, and scaled positions."""

import json
from collections.abc import Iterator
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SCALED_ROPE = "llama3"
"""The only scaled positions that both sides have: those of Llama 3.1 and later."""
ROPE_FACTORS = "rope_freqs.weight"
"""The tensor of a GGUF file that divides the frequencies of positions."""


def _bytes(*first: dict[str, Any], use_regex: bool) -> dict[str, Any]:
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "Sequence", "pretokenizers": [*first, last]}


def _pattern(digits: str) -> dict[str, Any]:
    pattern = (
        rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_DIGITS = {"type": "Digits", "individual_digits": True}
_SPLITS = (
    (("gpt-2",), _bytes(use_regex=True)),
    (("smollm", "starcoder", "refact", "codeshell"), _bytes(_DIGITS, use_regex=True)),
    (("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), _bytes(_pattern(r"\p{N}{1,3}"), use_regex=False)),
    (("qwen2", "deepseek-r1-qwen", "megrez"), _bytes(_pattern(r"\p{N}"), use_regex=False)),
)
SPLITS = {name: split for names, split in _SPLITS for name in names}
"""As `pre_tokenizer` in a tokenizer.json; of several names for one, the first is written."""


def name_of_split(tokenizer: Tokenizer) -> str | None:
    """The name of how a byte-level tokenizer splits text; None if llama.cpp has none that is known here."""
    state = json.loads(tokenizer.to_str())
    if (state["normalizer"] or {}).get("type", "NFC") != "NFC":  # llama.cpp leaves out that of Qwen
        return None
    parts = (state["pre_tokenizer"] or {}).get("pretokenizers", [state["pre_tokenizer"]])
    for part in parts:
        if part and "trim_offsets" in part:
            part["trim_offsets"] = True  # it decides where a token's text begins, not what the token is
    return next((name for name, split in SPLITS.items() if split["pretokenizers"] == parts), None)


def llama3_positions(theta: float) -> Iterator[dict[str, Any]]:
    """The settings of Llama 3.1 and 3.3, and of 3.2."""
    for factor in (8.0, 32.0):
        scale = {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        yield {"rope_type": SCALED_ROPE, "rope_theta": theta, **scale, "original_max_position_embeddings": 8192}


def rope_factors(config: PreTrainedConfig) -> Tensor:
    """By how much the frequencies of `llama3` positions are lower than plain ones, for each frequency of a head."""
    size = config.head_dim
    plain = 1 / config.rope_parameters["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
    scaled, _ = ROPE_INIT_FUNCTIONS[SCALED_ROPE](config, torch.device("cpu"))
    return torch.div(plain, scaled)
