"""Formats that a chat template does not show, as their models write them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nat.backend.words.formats import Format
from nat.backend.words.marks import NAME, SPACE


@dataclass(frozen=True)
class Family:
    """Models of one format, known by a text in their chat template or by a special token."""

    name: str
    sign: str
    calls: Mapping[str, Any]
    hidden: tuple[str, ...] = ()
    thinking: tuple[str, str] | None = None
    precedes: bool = False
    """True if the models write calls otherwise than the template does, so that this comes before what is found."""

    @property
    def format(self) -> Format:
        return Format.of(self.name, self.calls, hidden=self.hidden, thinking=self.thinking)


HERMES = Family("Hermes", "", {"open": "<tool_call>", "close": "</tool_call>", "content": "json"})
"""The most common format, which models of other families follow when they are asked to."""

FAMILIES = (
    Family(
        "gpt-oss",
        "<|channel|>commentary",
        {
            "open_pattern": rf"(?:<\|channel\|>commentary\s)?{SPACE}to=functions\.(?P<name>{NAME}){SPACE}"
            rf"(?:<\|channel\|>commentary{SPACE})?(?:<\|constrain\|>)?{SPACE}(?:json)?<\|message\|>",
            "close": "<|call|>",
            "content": "json",
            "transform": {"name": "{name}", "arguments": "{content}"},
        },
        hidden=(
            "<|channel|>final<|message|>",
            "<|channel|>commentary<|message|>",
            "<|start|>assistant",
            "<|end|>",
            "<|return|>",
        ),
        thinking=("<|channel|>analysis<|message|>", "<|end|>"),
        precedes=True,
    ),
    Family(
        "LFM2",
        "<|tool_call_start|>",
        {"open": "<|tool_call_start|>", "close": "<|tool_call_end|>", "content": "text"},
        hidden=("<|im_end|>",),
    ),
    Family(
        "Granite 3",
        "respond only with <|tool_call|> followed by a JSON list",
        {"open": "<|tool_call|>", "close": "<|end_of_text|>", "content": "json"},
        hidden=("<|end_of_text|>",),
    ),
)
