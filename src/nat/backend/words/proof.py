"""Prove a format: read back what the chat template writes for answers of all kinds, whole and in pieces."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nat.backend.words.formats import Format
from nat.backend.words.reader import AnswerReader, Piece
from nat.backend.words.samples import ASKED, FIRST, REFUSALS, SECOND, TOOLS, Answer, Render, answer, calling

SIZES = (1, 3, 7)
"""Characters of the pieces."""
_TEXT = "I look it up."
_THOUGHT = "First the weather, then the rest."
_ONE = {"zqa": "Paris", "zqb": "two words", "zqc": 3}
_PLAIN = "one call"
ANSWERS: dict[str, dict[str, Any]] = {
    _PLAIN: calling((FIRST, _ONE)),
    "two calls": calling((FIRST, _ONE), (SECOND, {"zqa": "Rome"})),
    "text before a call": calling((FIRST, _ONE), content=_TEXT),
    "nested values": calling((FIRST, {"zqe": {"x": [1, {"y": "z"}]}, "zqf": ["a", 2, []]})),
    "unicode": calling((FIRST, {"zqa": "Zürich, 東京 🌦", "zqb": 'say "hi" {1} \\ [2]'})),
    "newlines": calling((FIRST, {"zqa": "one\ntwo\n\n  three", "zqb": "x"})),
    "booleans": calling((FIRST, {"zqa": "True", "zqd": True}), (SECOND, {"zqd": False})),
    "null": calling((FIRST, {"zqa": "a", "zqg": None})),
    "no arguments": calling((FIRST, {})),
    "thinking": {**calling((FIRST, _ONE)), "reasoning_content": _THOUGHT},
    "text": {"role": "assistant", "content": "Paris has 17 °C."},
}


@dataclass(frozen=True)
class Proof:
    """What a format read back, of what the template writes."""

    shows_tools: bool
    """True if the template writes which tools there are."""
    writes_calls: bool
    writes_reasoning: bool
    """True if the template writes a message's `reasoning_content`; else it may take thinking inside the content."""
    failed: Mapping[str, str]
    """For each kind of answer that was misread: how."""

    @property
    def reads_calls(self) -> bool:
        """The least that a format must do."""
        return self.writes_calls and _PLAIN not in self.failed


def prove(words: Format, render: Render) -> Proof:
    """Read each kind of answer; what a template refuses or does not show is no failure."""
    failed, writes, reasons = {}, False, False
    for kind, message in ANSWERS.items():
        try:
            written = answer(render, message)
        except REFUSALS:
            continue
        problem = misread(words, written, message)
        if kind == _PLAIN and FIRST in written.text:
            writes = True
        reasons = reasons or _THOUGHT in written.text
        if problem is not None:
            failed[kind] = problem
    try:
        shows = FIRST in render([{"role": "user", "content": ASKED}], tools=TOOLS, for_answer=True)
    except REFUSALS:
        shows = False
    return Proof(shows, writes, reasons, failed)


def misread(words: Format, written: Answer, message: Mapping[str, Any]) -> str | None:
    """How the answer that a template wrote is misread; None if it is not."""
    text = written.text
    wanted = _shown(message, text, thinks=words.reasoning is not None)
    allowed = [wanted, ("", wanted[0] or wanted[1], wanted[2])]  # gpt-oss writes the text before a call as thinking
    for size in (len(text), *SIZES):
        seen = _comparable(read(words, text, header=written.prompt, size=size))
        if seen not in allowed:
            return f"read {_short(seen)} from {_short(text)}, {size} characters at a time"
        allowed = [seen]
    return None


def read(words: Format, text: str, *, header: str, size: int) -> Piece:
    """The whole answer, given in pieces of this many characters."""
    reader = AnswerReader(words, tools=TOOLS, prefix=words.prefix(header))
    pieces = [reader.push(text[at : at + size]) for at in range(0, len(text), size or 1)]
    return Piece.joined([*pieces, reader.finish()])


def _shown(message: Mapping[str, Any], text: str, *, thinks: bool) -> tuple[str, str, list[Any]]:
    functions = [call["function"] for call in message.get("tool_calls", ()) if call["function"]["name"] in text]
    calls = [[call["name"], {k: v for k, v in call["arguments"].items() if k in text}] for call in functions]
    content = message["content"] if message["content"] in text else ""
    reasoning = message.get("reasoning_content", "")
    return content, reasoning if thinks and reasoning in text else "", calls


def _comparable(piece: Piece) -> tuple[str, str, list[Any]]:
    calls = [[call.name, json.loads(call.arguments)] for call in piece.calls]
    return piece.content.strip(), piece.reasoning.strip(), calls


def _short(value: Any, longest: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= longest else f"{text[:longest]}…"
