"""Conversations with which a chat template shows its format; their words occur in no template."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nat.backend.words.marks import common_end, common_start, has_words

ASKED, SAID, THOUGHT = "zqasked", "zqsaid", "zqthought"
FIRST, SECOND = "zqfirst", "zqsecond"
"""Names of the functions."""
ARGUMENTS = {"zqa": "zqone", "zqb": "zqtwo", "zqc": 7351}
"""Two strings and a number; the keys in the alphabet's order, since templates sort."""
NEXT = "zqnext"
"""What comes after an answer."""
IDS = ("zqcall001", "zqcall002")
"""Nine letters and digits, as Mistral's templates want them."""
_PROPERTIES: dict[str, dict[str, Any]] = {
    "zqa": {"type": "string"},
    "zqb": {"type": "string"},
    "zqc": {"type": "integer"},
    "zqd": {"type": "boolean"},
    "zqe": {"type": "object", "additionalProperties": {"type": "string"}},
    "zqf": {"type": "array", "items": {"type": "string"}},
    "zqg": {"type": "string", "nullable": True},
}
REFUSALS = (ValueError, TypeError, LookupError, AttributeError)
"""What rendering a conversation may raise that a template does not take."""


class Render(Protocol):
    """A chat template: the text of messages, with or without the beginning of an answer."""

    def __call__(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]], for_answer: bool
    ) -> str: ...


def _tool(name: str) -> dict[str, Any]:
    properties = {key: {**schema, "description": "A value."} for key, schema in _PROPERTIES.items()}
    parameters = {"type": "object", "properties": properties, "required": []}
    return {"type": "function", "function": {"name": name, "description": "A function.", "parameters": parameters}}


TOOLS = (_tool(FIRST), _tool(SECOND))


def calling(*calls: tuple[str, Mapping[str, Any]], content: str = "") -> dict[str, Any]:
    """An answer with calls."""
    functions = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": dict(arguments)}}
        for call_id, (name, arguments) in zip(IDS, calls, strict=False)
    ]
    return {"role": "assistant", "content": content, "tool_calls": functions}


@dataclass(frozen=True)
class Answer:
    """What a template writes for a question and an answer, after the question's last word."""

    prompt: str
    """The end of the question's turn, and the header."""
    header: str
    """What only the prompt for an answer has, a mark of thinking included."""
    text: str
    """What the model has to write."""


def answer(render: Render, message: Mapping[str, Any]) -> Answer:
    """How a template writes an answer to a question.

    Raises:
        REFUSALS: the template refuses it.

    """
    question = {"role": "user", "content": ASKED}
    whole = render([question, dict(message)], tools=TOOLS, for_answer=False)
    calls = message.get("tool_calls", ())
    if calls and FIRST not in whole.rpartition(ASKED)[2]:  # Kimi's write the id, which has the function's name
        named = [{**call, "id": f"functions.{call['function']['name']}:{at}"} for at, call in enumerate(calls)]
        whole = render([question, {**message, "tool_calls": named}], tools=TOOLS, for_answer=False)
    asked, prompt = (render([question], tools=TOOLS, for_answer=for_answer) for for_answer in (False, True))
    always = asked == prompt
    whole, asked, prompt = (text.rpartition(ASKED)[2] for text in (whole, asked, prompt))
    before = common_start(whole, asked)
    rest, tail = whole.removeprefix(before), common_end(whole.removeprefix(before), asked)
    if always or has_words(tail):  # the template begins another answer after each one
        rest = rest.removesuffix(tail)
    header = common_start(rest, prompt.removeprefix(before)) if prompt.startswith(before) else ""
    return Answer(before + header, header, rest.removeprefix(header))


def after_answer(render: Render, *, calls: bool) -> tuple[str, str]:
    """What a template writes after the last word of an answer: in its own turn, and then before the next message's.

    The next message is the user's, or a tool's after calls. Nothing where the template refuses them.
    """
    said = calling((FIRST, ARGUMENTS)) if calls else {"role": "assistant", "content": SAID}
    follows = {"role": "tool", "name": FIRST, "tool_call_id": IDS[0]} if calls else {"role": "user"}
    chat = [{"role": "user", "content": ASKED}, said, {**follows, "content": NEXT}]
    try:
        texts = [answer(render, said).text, render(chat, tools=TOOLS, for_answer=False).rpartition(ASKED)[2]]
    except REFUSALS:
        return after_answer(render, calls=False) if calls else ("", "")
    words = [str(value) for value in ARGUMENTS.values()] if calls else [SAID]
    own, both = (re.split(f".*(?:{'|'.join(words)})", text, maxsplit=1, flags=re.DOTALL)[-1] for text in texts)
    return own, both.partition(NEXT)[0].removeprefix(own) if NEXT in both and both.startswith(own) else ""
