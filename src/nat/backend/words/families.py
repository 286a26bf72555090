"""Formats that a chat template does not show, as their models write them."""

from nat.backend.words.formats import Format
from nat.backend.words.marks import NAME, SPACE

HERMES = Format.of("Hermes", {"open": "<tool_call>", "close": "</tool_call>", "content": "json"})
"""The most common format, which models of other families follow when they are asked to."""

PRECEDING = {
    "<|channel|>commentary": Format.of(
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
}
"""By a text in their chat template or a special token; these models write calls otherwise than the template does."""

FOLLOWING = {
    "<|tool_call_start|>": Format.of(
        "LFM2",
        {"open": "<|tool_call_start|>", "close": "<|tool_call_end|>", "content": "text"},
        hidden=["<|im_end|>"],
    ),
    "respond only with <|tool_call|> followed by a JSON list": Format.of(
        "Granite 3",
        {"open": "<|tool_call|>", "close": "<|end_of_text|>", "content": "json"},
        hidden=["<|end_of_text|>"],
    ),
}
"""The same, of templates in which no format is found."""
