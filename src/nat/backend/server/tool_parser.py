"""Tool calls in the Hermes format: `<tool_call>{"name": …, "arguments": {…}}</tool_call>` inside the text.

Pure: text goes in piece by piece, content and calls come out; a whole answer is one piece. An invalid call stays
content, so that nothing of the model's answer is lost.
"""

import json
from dataclasses import dataclass

from nat.wire.json import parse_json

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True)
class ParsedCall:
    """A function's name and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass
class HermesParser:
    """Separates content from tool calls as the text grows; holds text back that may begin a call."""

    calls_wanted: int | None = None
    """Calls after this many are dropped, None keeps all."""
    num_calls: int = 0
    _held: str = ""
    _after_call: bool = False

    def push(self, text: str) -> tuple[str, list[ParsedCall]]:
        """The content that is certain by now, and the calls that `text` completed."""
        self._held += text
        content = ""
        calls: list[ParsedCall] = []
        while (start := self._held.find(_OPEN)) >= 0:
            content += self._content(start)
            end = self._held.find(_CLOSE)
            if end < 0:
                return content, calls
            call = _parse(self._held[len(_OPEN) : end])
            if call is None:
                content += self._content(end + len(_CLOSE))
                continue
            self._held = self._held[end + len(_CLOSE) :]
            self._after_call = True
            if self.calls_wanted is None or self.num_calls < self.calls_wanted:
                self.num_calls += 1
                calls.append(call)
        content += self._content(len(self._held) - _partial_tag(self._held))
        return content, calls

    def finish(self) -> str:
        """The text that was held back and is content after all."""
        return self._content(len(self._held))

    def _content(self, end: int) -> str:
        """Release held text up to `end`; blank text that follows a call is layout and not content."""
        part, self._held = self._held[:end], self._held[end:]
        if self._after_call:
            part = part.lstrip()
            self._after_call = not part
        return part


def _parse(block: str) -> ParsedCall | None:
    try:
        call = parse_json(block)
    except ValueError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    return ParsedCall(
        call["name"], arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    )


def _partial_tag(text: str) -> int:
    """Length of the longest end of `text` with which the opening tag begins."""
    return next((n for n in range(min(len(_OPEN) - 1, len(text)), 0, -1) if text.endswith(_OPEN[:n])), 0)
