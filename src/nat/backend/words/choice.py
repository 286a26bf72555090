"""Choose the format of a model's answers, and say so if none reads its calls."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from nat.backend.words.formats import REASONING, Format, FormatRefused
from nat.backend.words.found import found
from nat.backend.words.marks import NAME, SPACE
from nat.backend.words.proof import Proof, prove
from nat.backend.words.samples import Render

YAML, TOKENIZER = "the YAML", "tokenizer_config.json"

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
    )
}
"""By a text in their chat template or a special token; these models write calls otherwise than the template does."""

FOLLOWING = {
    "<|tool_call_start|>": Format.of(
        "LFM2", {"open": "<|tool_call_start|>", "close": "<|tool_call_end|>", "content": "text"}, hidden=["<|im_end|>"]
    ),
    "respond only with <|tool_call|> followed by a JSON list": Format.of(
        "Granite 3",
        {"open": "<|tool_call|>", "close": "<|end_of_text|>", "content": "json"},
        hidden=["<|end_of_text|>"],
    ),
}
"""The same, of templates in which no format is found."""


@dataclass(frozen=True)
class Words:
    """The format by which answers are read, and what was tried before it."""

    format: Format
    proof: Proof
    tried: tuple[str, ...] = ()

    def with_reasoning(self, message: Mapping[str, Any], reasoning: str) -> dict[str, Any]:
        """An answer with its thinking in the form that the chat template takes."""
        begins, ends = self.format.thinking_marks
        if self.proof.writes_reasoning or not (begins and ends):
            return {**message, REASONING[0]: reasoning}
        content = f"{begins[0]}\n{reasoning}\n{ends[0]}\n\n{message.get('content') or ''}"
        return {**message, "content": content}

    @property
    def refusal(self) -> str | None:
        """Why tool calls may be lost, and what to set; None if the format reads what the template writes."""
        if self.proof.reads_calls or not (self.proof.writes_calls or self.format.origin == HERMES.origin):
            return None
        unseen = "" if self.proof.shows_tools else "the chat template does not show the model its tools, and "
        return (
            f"{unseen}no known format reads this model's tool calls ({'; '.join(self.tried)}). Calls are read in the "
            f"{HERMES.origin} format; if the model writes others, set `response_template` of the LLM"
        )


def choose(
    render: Render,
    source: str,
    *,
    marks: Collection[str] = (),
    declared: Mapping[str, Any] | None = None,
    own: Mapping[str, Any] | None = None,
) -> Words:
    """The first format that reads what the chat template writes: `declared`, `own`, found, of the registry, Hermes.

    `source` is the template's text, `marks` are the special tokens, `declared` stands in the YAML, `own` is the
    tokenizer's.
    """
    preceding, following = (
        [known for sign, known in family.items() if sign in source or sign in marks]
        for family in (PRECEDING, FOLLOWING)
    )
    tried: list[str] = []
    if own is not None and has_patterns(own):
        own = None
        tried.append(f"{TOKENIZER}: its patterns could take any time, so only marks that are plain text are read")
    known: list[Format | None] = [
        *(Format(raw, origin) for raw, origin in ((declared, YAML), (own, TOKENIZER)) if raw is not None),
        *preceding,
        None,  # what is found
        *following,
        HERMES,
    ]
    for each in known:
        try:
            words = (each or found(render, source)).hiding(marks)
            proof = prove(words, render)
            if proof.reads_calls or not proof.writes_calls or words.origin == HERMES.origin:
                return Words(words, proof, tuple(tried))
            problem = f"{words.origin}: it misreads a call: {next(iter(proof.failed.values()))}"
        except FormatRefused as error:
            problem = str(error)
        except RecursionError:
            problem = "what the chat template writes is nested too deeply"
        if declared is not None:
            raise FormatRefused(problem)
        tried.append(problem)
    raise AssertionError("Hermes comes last")


def has_patterns(template: Any) -> bool:
    """True for a response template with a regular expression; whoever writes a model's folder could stop the server."""
    parts = [template]  # no recursion: it may be nested as deeply as JSON can be
    while parts:
        part = parts.pop()
        if isinstance(part, Mapping):
            if any(str(key).endswith("_pattern") for key in part):
                return True
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return False
