"""Text to token ids and back: the chat template, one token's text and bytes, and whole completions."""

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from inspect import signature
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from nat.backend.byte_cache import ByteCache
from nat.errors import ModelNotSupported, describe_error

REPLACEMENT = "\ufffd"
"""What a decoder puts where bytes are not (yet) a whole character."""


MAX_CACHE_BYTES = 64 * 2**20
"""Texts and their ids that are kept, because a prompt is asked for as often as it has generations."""


class ChatNotRendered(ValueError):
    """The chat template refused these messages, in the template's own words; `param` is the field to blame."""

    def __init__(self, message: str, *, param: str = "messages") -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True)
class TokenText:
    """How one token reads by itself; `data` is None if its bytes cannot be told from the vocabulary."""

    text: str
    data: tuple[int, ...] | None


class ChatTokenizer:
    """The checkpoint's tokenizer behind the few operations that serving needs; safe to call from any thread."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, max_cache_bytes: int = MAX_CACHE_BYTES) -> None:
        self.hf = tokenizer
        self._token_text = cache(self._read_token)
        self._encoded: ByteCache[tuple[str, bool], array[int]] = ByteCache(max_cache_bytes)
        self._vocabulary = cache(tokenizer.get_vocab)

    @property
    def cached_bytes(self) -> int:
        """What is held of texts and their ids."""
        return self._encoded.num_bytes

    @property
    def eos_token_id(self) -> int | None:
        eos: int | None = self.hf.eos_token_id
        return eos

    @property
    def special_tokens(self) -> list[str]:
        """How the tokens read that stand for structure and not for text, the end of a turn among them."""
        added = self.hf.added_tokens_decoder.values()
        return list(dict.fromkeys([*(token.content for token in added if token.special), *self.hf.all_special_tokens]))

    @cached_property
    def reserved_variables(self) -> frozenset[str]:
        """Names of template variables that no request may set: they are arguments of the renderer, or the model's own.

        Among the former is the template itself, so whoever sets them runs a program of their own in the server.
        """
        renderers = (type(self.hf).apply_chat_template, render_jinja_template)
        arguments = {name for renderer in renderers for name in signature(renderer).parameters}
        return frozenset({"messages", *arguments, *self.hf.special_tokens_map})

    @cached_property
    def longest_token(self) -> int:
        """Most characters of a text that one token can stand for, with a separator that no token spells."""
        return 1 + max(map(len, self.hf.get_vocab()))

    def render_chat(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        template_arguments: dict[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation, ready for the assistant's next message."""
        return self.encode_rendered(self.render_text(messages, tools=tools, template_arguments=template_arguments))

    def render_text(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        template_arguments: dict[str, Any] | None = None,
    ) -> str:
        """The same as the text that the chat template writes."""
        if self.hf.chat_template is None:
            raise ModelNotSupported(
                "the model's tokenizer has no chat template, so chat messages cannot be rendered",
                hint="use /v1/completions, or put a chat_template.jinja beside the tokenizer",
            )
        variables = template_arguments or {}
        if reserved := sorted(self.reserved_variables.intersection(variables)):
            raise ChatNotRendered(
                f"{', '.join(reserved)}: not a variable of the chat template but an argument of what renders it",
                param="chat_template_kwargs",
            )
        try:
            text: Any = self.hf.apply_chat_template(
                list(messages),
                tools=None if tools is None else list(tools),
                add_generation_prompt=True,
                tokenize=False,
                **variables,
            )
        except Exception as error:  # the boundary of a program that is not ours, on messages that are not ours
            raise ChatNotRendered(describe_error(error)) from error
        assert isinstance(text, str), "a template writes text"
        return text

    def encode_rendered(self, text: str) -> list[int]:
        """Token ids of what a template wrote, with the special tokens that stand in it and no others."""
        return self._encode(text, special=False)

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with the special tokens that the model expects around a text."""
        return self._encode(text, special=True)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a completion, without special tokens and without cosmetic changes to spaces."""
        text = self.hf.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert isinstance(text, str), "one sequence gives one text"
        return text

    def token_text(self, token_id: int) -> TokenText:
        """One token as a logprobs entry shows it, special tokens included."""
        return self._token_text(token_id)

    def token_id(self, text: str, data: Sequence[int] | None = None) -> int | None:
        """The token that a logprobs entry shows, also where it shows the vocabulary's own spelling; None if none."""
        vocabulary = self._vocabulary()
        content = tuple(data) if data else tuple(text.encode())
        entries = ["".join(_byte_symbols()[byte] for byte in content), text]
        if len(content) == 1:
            entries.append(f"<0x{content[0]:02X}>")
        candidates = [vocabulary[entry] for entry in entries if entry in vocabulary]
        encoded = self._encode(text, special=False)
        if len(encoded) == 1:
            candidates.append(encoded[0])
        exact = (token for token in candidates if self.token_text(token).data == content)
        return next(exact, vocabulary.get(text))

    def _encode(self, text: str, *, special: bool) -> list[int]:
        known = self._encoded.get((text, special))
        if known is not None:
            return known.tolist()
        # The server answers a text that is too long with an error of its own; `verbose` would only log it.
        ids: list[int] = self.hf.encode(text, add_special_tokens=special, verbose=False)
        packed = array("i", ids)
        self._encoded.put((text, special), packed, sys.getsizeof(text) + sys.getsizeof(packed))
        return ids

    def _read_token(self, token_id: int) -> TokenText:
        text = self.hf.decode([token_id], clean_up_tokenization_spaces=False)
        assert isinstance(text, str), "one sequence gives one text"
        if REPLACEMENT not in text:
            return TokenText(text, tuple(text.encode()))
        return TokenText(text, _vocabulary_bytes(str(self.hf.convert_ids_to_tokens(token_id))))


def _vocabulary_bytes(entry: str) -> tuple[int, ...] | None:
    """Bytes of a token that is only a part of a character, from how byte-level and byte-fallback BPE spell it."""
    if len(entry) == len("<0x00>") and entry.startswith("<0x"):
        return (int(entry[3:5], 16),)
    table = _byte_level_alphabet()
    return tuple(table[c] for c in entry) if all(c in table for c in entry) else None


@cache
def _byte_symbols() -> dict[int, str]:
    return {byte: symbol for symbol, byte in _byte_level_alphabet().items()}


@cache
def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte: printable Latin-1 stands for itself, the rest from U+0100 up."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(hidden)}
