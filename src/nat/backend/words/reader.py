"""Read an answer: its content, its thinking and its tool calls, from text that comes piece by piece or whole.

transformers' parser finds the marks; this guards it. A call counts only if it was closed and its arguments can be
read; otherwise its text stays content, so that nothing of the answer is lost. A call of a function that was not offered
counts, as on other servers: the agent tells the model, which it may learn from.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from transformers.utils.chat_parsing.response_parser import ResponseParser
from transformers.utils.chat_parsing.response_templates import ResponseTemplateField

from nat.backend.words.calls import Call, calls_in, parameters_of
from nat.backend.words.formats import CALLS, CONTENT, Format, FormatRefused
from nat.wire.openai_api import CallStatus

_ID = re.compile(r"functions\.[\w.-]{1,128}:\w{1,128}")
"""An id with the function's name, as Kimi writes it."""
_AT_ONCE = 64
"""Characters; after each mark the parser searches all that it has, which for long texts takes their length squared."""
_BEHIND = 64
"""Characters that the parser keeps of what it has read, since a mark may depend on the text before it."""


@dataclass
class Piece:
    """What a piece of an answer added."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)

    @classmethod
    def joined(cls, pieces: Sequence["Piece"]) -> "Piece":
        """What several pieces added."""
        return cls(
            "".join(piece.content for piece in pieces),
            "".join(piece.reasoning for piece in pieces),
            [call for piece in pieces for call in piece.calls],
        )

    def __add__(self, later: "Piece") -> "Piece":
        return Piece.joined([self, later])


def read_answer(
    words: Format, text: str, *, tools: Sequence[Mapping[str, Any]] | None = None, prefix: str = ""
) -> Piece:
    """The whole of an answer."""
    reader = AnswerReader(words, tools=tools, prefix=prefix)
    return reader.push(text) + reader.finish()


def plain_content(words: Format, content: str) -> str:
    """Content as an answer's, if a client has left thinking or other marks in it.

    The prompt may have had the mark that opens the thinking.
    """
    opened, closed = (
        min([content.find(mark) for mark in marks if mark in content], default=-1) for marks in words.thinking_marks
    )
    hidden = words.fields[CONTENT].close_re
    if max(opened, closed) < 0 and (hidden is None or hidden.search(content) is None):
        return content
    prefix = words.thinking_marks[0][0] if closed >= 0 and not 0 <= opened < closed else ""
    return read_answer(words.without_calls, content, prefix=prefix).content


class AnswerReader:
    """Separates content, thinking and calls as the text grows; holds text back that may begin one of them."""

    def __init__(
        self,
        words: Format,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        prefix: str = "",
        calls_wanted: int | None = None,
    ) -> None:
        """Without `tools`, a call may name any function. Calls after `calls_wanted` are dropped.

        `prefix` is the mark of thinking with which the prompt ended, if it did.
        """
        self._format = words
        self._fields = words.fields
        self._hidden = words.fields[CONTENT].close_re
        self._parameters = parameters_of(tools or ())
        """Of the tools; none if a call may name any function."""
        self._calls_wanted = calls_wanted
        self._parser = ResponseParser(words.regions, prefix=prefix)
        self.num_calls = 0
        self.lost: list[CallStatus] = []
        """What was wrong with calls, each of them; those of an unknown tool count nevertheless."""
        self._unread = ""
        """Text that the parser was given and that no event has reported."""
        self._open: _Region | None = None
        self._layout = ""
        """Marks around calls, which are content only if the call is."""
        self._trims = False
        self._piece = Piece()
        for event in self._parser.initial_events:
            if event["type"] == "region_open" and event["field"] != CONTENT:
                self._open = _Region(self._fields[event["field"]], "", {}, [])

    def push(self, text: str) -> Piece:
        """What is certain by now and was not before."""
        pieces = []
        for at in range(0, len(text), _AT_ONCE):
            part = text[at : at + _AT_ONCE]
            self._unread += part
            pieces.append(self._read(self._parser.feed(part)))
            # Drop what the parser has read and reported, all of which it would copy at each feed.
            parser: Any = self._parser  # it has no method for this
            read = max(0, parser._pos - _BEHIND)  # noqa: SLF001
            parser._buffer, parser._pos, parser._body = parser._buffer[read:], parser._pos - read, ""  # noqa: SLF001
        return Piece.joined(pieces)

    def finish(self) -> Piece:
        """What the end of the answer makes certain."""
        _, events = self._parser.finalize()
        piece = self._read(events)
        if self._open is not None and self._open.field.name == CALLS:
            self._lose(CallStatus.UNCLOSED)
        return piece

    def _read(self, events: list[dict[str, Any]]) -> Piece:
        self._piece = Piece()
        for event in events:
            kind, name = event["type"], event["field"]
            if name == CONTENT:
                if kind == "region_chunk":
                    self._skip_hidden(None)
                    self._layout = ""
                    self._add_content(event["text"])
                    self._advance(len(event["text"]))
            elif kind == "region_open":
                self._open_region(self._fields[name])
            elif kind == "region_chunk":
                self._advance(len(event["text"]))
                self._add_to_region(event["text"])
            else:
                self._close_region()
        return self._piece

    def _open_region(self, opened: ResponseTemplateField) -> None:
        self._skip_hidden(opened)
        if (found := opened.open_re.match(self._unread)) is None:
            raise FormatRefused(f"{self._format.origin}: a mark that depends on the text before it")
        self._open = _Region(opened, found.group(), {k: v for k, v in found.groupdict().items() if v is not None}, [])
        self._advance(found.end())

    def _add_to_region(self, text: str) -> None:
        region = self._open
        assert region is not None, "a chunk comes after its region was opened"
        if region.field.name == self._format.reasoning:
            begun = any(part.strip() for part in region.parts)
            self._piece.reasoning += text if begun else text.lstrip()
        elif region.field.name != CALLS:
            self._add_content(text)
        region.parts.append(text)

    def _close_region(self) -> None:
        region = self._open
        assert region is not None, "a region is opened before it is closed"
        closed = region.field.close_re.match(self._unread) if region.field.close_re is not None else None
        if closed is None:  # the answer ended
            return
        self._advance(closed.end())
        region.end = closed.group()
        if region.field.name == CALLS:
            self._take_calls(region)
        self._open = None
        self._trims = self._trims or region.field.name != CALLS

    def _take_calls(self, region: "_Region") -> None:
        try:
            calls = calls_in(region.body, region.field, region.captures, self._parameters)
        except (ValueError, KeyError, TypeError, RecursionError):
            self._lose(CallStatus.MALFORMED)
            return
        unknown = [call for call in calls if self._parameters and call.name not in self._parameters]
        if not region.start and any(call.arguments == "{}" for call in unknown):  # an answer as JSON: {"name": "Ann"}
            self._lose(CallStatus.UNKNOWN_TOOL)
            return
        self.lost += [CallStatus.UNKNOWN_TOOL] * len(unknown)
        self._layout = ""
        self._trims = True
        room = len(calls) if self._calls_wanted is None else max(0, self._calls_wanted - self.num_calls)
        if (written := _ID.search(region.start)) is not None:
            calls = [replace(call, call_id=written.group()) for call in calls]
        self._piece.calls += calls[:room]
        self.num_calls += len(calls[:room])

    def _lose(self, status: CallStatus) -> None:
        assert self._open is not None, "only a call's region is lost"
        self.lost.append(status)
        shown = self._open.text if self._hidden is None else self._hidden.sub("", self._open.text)
        self._add_content(self._layout + shown)
        self._layout = ""
        self._open = None

    def _add_content(self, text: str) -> None:
        """Blank text that follows a call or thinking is layout and not content."""
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        self._piece.content += text

    def _skip_hidden(self, opened: ResponseTemplateField | None) -> None:
        while self._hidden is not None and (found := self._hidden.match(self._unread)) and found.group():
            if opened is not None:
                other = opened.open_re.match(self._unread)
                if other is not None and other.end() >= found.end():
                    return
            self._layout += found.group()
            self._trims = self._trims or found.group() not in self._format.specials
            self._advance(found.end())

    def _advance(self, length: int) -> None:
        self._unread = self._unread[length:]


@dataclass
class _Region:
    """A region between two marks, as it was written."""

    field: ResponseTemplateField
    start: str
    captures: dict[str, str]
    parts: list[str]
    end: str = ""

    @property
    def body(self) -> str:
        return "".join(self.parts)

    @property
    def text(self) -> str:
        return self.start + self.body + self.end
