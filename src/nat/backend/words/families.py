"""Formats that a chat template does not show, as their models write them."""

from dataclasses import dataclass

from nat.backend.words.formats import Format
from nat.backend.words.marks import NAME, SPACE


@dataclass(frozen=True)
class Family:
    """Models of one format, known by a text in their chat template or by a special token."""

    sign: str
    format: Format
    precedes: bool = False
    """True if the models write calls otherwise than the template does, so that this comes before what is found."""

    @property
    def name(self) -> str:
        return self.format.origin


HERMES = Family("", Format.of("Hermes", {"open": "<tool_call>", "close": "</tool_call>", "content": "json"}))
"""The most common format, which models of other families follow when they are asked to."""

FAMILIES = (
    Family(
        "<|channel|>commentary",
        Format.of(
            "gpt-oss",
            {
                "open_pattern": rf"(?:<\|channel\|>commentary\s)?{SPACE}to=functions\.(?P<name>{NAME}){SPACE}"
                rf"(?:<\|channel\|>commentary{SPACE})?(?:<\|constrain\|>)?{SPACE}(?:json)?<\|message\|>",
                "close": "<|call|>",
                "content": "json",
                "transform": {"name": "{name}", "arguments": "{content}"},
            },
            hidden=(
                *("<|channel|>final<|message|>", "<|channel|>commentary<|message|>"),
                *("<|start|>assistant", "<|end|>", "<|return|>"),
            ),
            thinking=("<|channel|>analysis<|message|>", "<|end|>"),
        ),
        precedes=True,
    ),
    Family(
        "<|tool_call_start|>",
        Format.of(
            "LFM2",
            {"open": "<|tool_call_start|>", "close": "<|tool_call_end|>", "content": "text"},
            hidden=["<|im_end|>"],
        ),
    ),
    Family(
        "respond only with <|tool_call|> followed by a JSON list",
        Format.of(
            "Granite 3",
            {"open": "<|tool_call|>", "close": "<|end_of_text|>", "content": "json"},
            hidden=["<|end_of_text|>"],
        ),
    ),
)
