"""Read tokenizers and encode texts: a `tokenizer.json` has regular expressions, which can take any time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

TOKENIZER = "tokenizer.json"
_ADDED = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""Files of tokens that transformers adds, which normalizes them."""
_MAX_PARTS = 64
"""Of a decoder; those of known models have up to 8."""
_MAX_GROWTH = 64
"""How many times longer the replacements of a decoder may make a text."""


def open_tokenizer(text: str, *, split_special: bool) -> Tokenizer:
    """A tokenizer from its JSON, set to encode whole texts."""
    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = split_special
    return tokenizer


def encode(tokenizer: Tokenizer, text: str, *, special: bool) -> list[int]:
    """The ids of a text, with the special tokens that the model expects around it or without."""
    ids: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=special)[0].ids
    return ids


def pieces(tokenizer: Tokenizer, ids: list[int]) -> list[str | None]:
    """The text that each token adds; None if the token ends inside a character, which a later token completes."""
    stream = DecodeStream(skip_special_tokens=False)
    return [stream.step(tokenizer, each) for each in ids]


def check_tokenizer(folder: Path) -> str | None:
    """Do what loading the folder's tokenizer does; returns why its decoder can take any time, None if it cannot.

    Files that are damaged are left to the loader, which names them.
    """
    content = _json(folder / TOKENIZER)
    if not isinstance(content, dict):
        return None
    if (problem := decoder_problem(content.get("decoder"))) is not None:
        return problem
    try:
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception:  # noqa: BLE001 - tokenizers raises nothing more specific
        return None
    if tokenizer.normalizer is not None:
        for name in _ADDED:
            for text in _strings(_json(folder / name)):
                tokenizer.normalizer.normalize_str(text)
    return None


def decoder_problem(decoder: Any) -> str | None:
    """Why a decoder is not bounded: it runs in the server, after each token of each answer."""
    growth, parts = 1, list(_objects(decoder))
    if len(parts) > _MAX_PARTS:
        return f"its decoder has {len(parts)} parts; {_MAX_PARTS} are the most"
    for part in parts:
        if part.get("type") != "Replace":
            continue
        pattern = part.get("pattern")
        text = pattern.get("String") if isinstance(pattern, dict) else pattern
        if not isinstance(text, str):
            return "its decoder replaces a regular expression, whose time has no bound"
        growth *= max(1, -(-len(str(part.get("content", ""))) // max(1, len(text))))
    return None if growth <= _MAX_GROWTH else f"its decoder can make a text {growth} times as long"


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "chat_template":
                yield from _strings([key, item])
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
