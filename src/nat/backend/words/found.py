"""Find a format: render calls with known words through a chat template, and compare the texts.

What one call and two have in common gives the marks; what stands around the known words gives the kind of arguments:
JSON, tags or Python. A format that is found is a guess until it passes the proof.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from nat.backend.words.calls import MalformedCall, name_and_arguments
from nat.backend.words.formats import Format, FormatRefused
from nat.backend.words.marks import (
    NAME,
    SPACE,
    WORD,
    alike,
    common_end,
    common_start,
    disjoint,
    layout,
    letters,
    marks_in,
    opening,
    parts,
    pattern,
)
from nat.backend.words.samples import ARGUMENTS, FIRST, IDS, REFUSALS, SAID, SECOND, THOUGHT, Render, answer, calling

ORIGIN = "found in the chat template"
_ID, _AGAIN = "\ue000", "\ue001"
"""Stand in compared texts for what differs from call to call: an id, and the name or key once more."""
_WILD = {_ID: r"[\w.:-]{0,128}", WORD: r"\w{1,128}", _AGAIN: NAME}
_NAME = f"(?P<name>{NAME})"
_NAMED = {"transform": {"name": "{name}", "arguments": "{content}"}}
KEYS, VALUES = tuple(ARGUMENTS), tuple(ARGUMENTS.values())
_OPPOSITES = (("</", "<"), ("[/", "["), ("END", "START"), ("close", "open"))
"""What differs in marks that end and begin something."""
_USUAL = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
_THINKING_CALL = {**calling((FIRST, ARGUMENTS)), "reasoning_content": THOUGHT}
_Marks = tuple[str, str]
_Found = tuple[dict[str, Any], list[str]]
"""The field of calls, and texts around calls that are no content."""


class NotFound(FormatRefused):
    """The template does not show a format; the text says why."""


def found(render: Render, source: str) -> Format:
    """The format that a chat template shows, else NotFound; `source` is the template's text."""
    thinking = _thinking(render, source)
    calls, hidden = _calls(render, thinking, source)
    plain = answer(render, {"role": "assistant", "content": SAID})
    if plain.header.strip() and plain.header.strip() in answer(render, _THINKING_CALL).text:  # several messages in one
        hidden += layout(plain.header)
    before, _, after = plain.text.partition(SAID)
    hidden += [*layout(before), *(layout(after) or [after.strip()])]
    if thinking is not None:
        hidden = [part for mark in hidden for part in (mark, mark.removeprefix(thinking[1])) if thinking[0] not in part]
    return Format.of(ORIGIN, calls, hidden=disjoint(hidden), thinking=thinking)


def _thinking(render: Render, source: str) -> _Marks | None:
    with suppress(*REFUSALS):
        shown = answer(render, _THINKING_CALL)
        before, _, rest = shown.text.partition(THOUGHT)
        if marks := _marks_around(shown.prompt, before.strip(), rest.partition(FIRST)[0]):
            return marks
    return next((marks for marks in _USUAL if marks[1] in source), None)


def _marks_around(prompt: str, before: str, after: str) -> _Marks | None:
    """Marks that are opposites; else the text before, or a mark at the prompt's end with the same letters."""
    ended = parts(after)
    for close in ("".join(ended[:length]).strip() for length in range(1, len(ended) + 1)):
        for pair in _OPPOSITES:
            opened = close.replace(*pair)
            if opened != close and (prompt + before).rstrip().endswith(opened):
                return opened, close
    if not (ends := marks_in(after)):
        return None
    last_mark = "".join(marks_in(prompt)[-1:])
    last = prompt[prompt.rfind(last_mark) :].strip()
    opened = before or (last if letters(ends[0]) in letters(last) else "")
    return (opened, ends[0]) if opened else None


@dataclass(frozen=True)
class _Shown:
    """What a template writes for one call, and for two; nothing if it takes no two."""

    one: str
    two: str
    source: str


def _calls(render: Render, thinking: _Marks | None, source: str) -> _Found:
    def text(*calls: tuple[str, dict[str, Any]]) -> str:
        written = answer(render, calling(*calls)).text
        if thinking is not None and thinking[1] in written.partition(FIRST)[0]:
            written = written.partition(thinking[1])[2]  # some templates write empty thinking before a call
        for one in IDS:
            written = written.replace(one, _ID)
        return written

    try:
        one, two = text((FIRST, ARGUMENTS)), ""
    except REFUSALS as error:
        raise NotFound(f"the chat template refuses a call: {error}") from error
    if FIRST not in one:
        raise NotFound("the chat template does not write calls")
    with suppress(*REFUSALS):
        two = text((FIRST, ARGUMENTS), (SECOND, ARGUMENTS))
    for form in (_json, _json_after_name, _tags, _python):
        with suppress(ValueError):  # calls of another form
            return form(_Shown(one, two if SECOND in two else "", source))
    raise NotFound("the chat template writes calls in no form that is known here")


def _values(text: str, start: int = 0) -> Iterator[tuple[int, int, Any]]:
    decoder = json.JSONDecoder()
    for bracket in re.compile(r"[\[{]").finditer(text, start):
        try:
            value, end = decoder.raw_decode(text, bracket.start())
        except ValueError:
            continue
        yield bracket.start(), end, value


def _json(shown: _Shown) -> _Found:
    [(start, end, value), *_] = [found for found in _values(shown.one) if _is_call(found[-1])]
    between = ""
    if not isinstance(value, list):
        seconds = (at for at, _, other in _values(shown.two, end) if SECOND in json.dumps(other))
        between = shown.two[end : next(seconds, end)]
    opened, closes, rest = _around(shown.one[:start], between, shown.one[end:])
    key = rf'\{{{SPACE}"{re.escape(next(iter(_first(value))))}":'
    begins = {"open_pattern": rf"(?=\[{SPACE}{key})" if isinstance(value, list) else f"(?={key})"}
    return {**({"open": opened.strip()} if opened.strip() else begins), **closes, "content": "json"}, rest


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _is_call(value: Any) -> bool:
    try:
        return name_and_arguments(_first(value))[0] == FIRST
    except MalformedCall:
        return False


def _json_after_name(shown: _Shown) -> _Found:
    """The name, then the arguments as JSON, or without quotes around keys and with marks around strings."""
    one, dialect = shown.one, dict[str, Any]()
    if lax := re.search(rf"{FIRST}(?=\{{{KEYS[0]}:(\W+){VALUES[0]}(\W+?),)", one):
        start, end = lax.end(), one.index("}", lax.end(2)) + 1
        dialect = {"content_args": {"unquoted_keys": True, "string_delims": [list(lax.groups())]}}
    else:
        [(start, end), *_] = [place for *place, value in _values(one) if value == ARGUMENTS]
    opened, middle, closes, rest = _named(shown, one.rindex(FIRST, 0, start), start, end)
    begin = pattern(opened.lstrip(), _WILD) or r"(?<![\w.-])"  # a name begins once in a word
    mark = begin + _NAME + pattern(middle.rstrip(), _WILD)
    return {"open_pattern": mark, **closes, "content": "json", **dialect, **_NAMED}, rest


def _tags(shown: _Shown) -> _Found:
    words = "(.+?)".join(re.escape(str(word)) for pair in ARGUMENTS.items() for word in pair)
    [found, *_] = re.finditer(f"{FIRST}((?:(?!{FIRST}).)*?){words}", shown.one, re.DOTALL)
    first, around, step, _, _, number = found.groups()
    step = step.replace(KEYS[0], _AGAIN)
    close = common_start(step, shown.one[found.end() :].replace(KEYS[2], _AGAIN))
    key = common_end(first, step[len(close) :])
    if not key.strip() or not close.strip():
        raise ValueError("no tags")
    around = alike(around, number)
    tag = pattern(key.strip(), {}) + r"(?P<key>[^<>\"\s]{1,128}?)" + pattern(around.rstrip(), _WILD)
    value = r"(?:<!\[CDATA\[)?(?P<value>.*?)(?:\]\]>)?" if "CDATA" in shown.source else "(?P<value>.*?)"
    # A line break around a value is layout if the template writes one.
    tag += (rf"\n?{value}\n?" if "\n" in around + close else value) + pattern(close.strip(), {_AGAIN: "(?P=key)"})
    end = found.end() + len(close.replace(_AGAIN, KEYS[2]))
    opened, middle, closes, rest = _named(shown, found.start(), found.end(1), end)
    mark = pattern(opened.strip(), _WILD) + _NAME + pattern(middle.removesuffix(key).rstrip(), _WILD)
    content = {"content": "xml-inline", "content_args": {"tag_pattern": tag}}
    return {"open_pattern": mark, **closes, **content, **_NAMED}, rest


def _named(shown: _Shown, at: int, start: int, end: int) -> tuple[str, str, dict[str, Any], list[str]]:
    middle, between = shown.one[at + len(FIRST) : start], ""
    if shown.two:
        second = shown.two.index(KEYS[0], end) - shown.one.index(KEYS[0], start) + start
        name = shown.two.rindex(SECOND, 0, second)
        middle, between = alike(middle, shown.two[name + len(SECOND) : second]), shown.two[end:name]
    before, between = shown.one[:at].replace(FIRST, _AGAIN), between.replace(SECOND, _AGAIN)
    opened, closes, rest = _around(before, between, shown.one[end:])
    if not opened.strip() and not middle.strip():
        raise ValueError("nothing marks a call")
    return opened, middle, closes, rest


def _python(shown: _Shown) -> _Found:
    [found, *_] = re.finditer(rf"\[?{FIRST}\({KEYS[0]}=['\"]{VALUES[0]}['\"], ?{KEYS[1]}=.*?\)\]?", shown.one)
    opened, closes, rest = _around(shown.one[: found.start()], "", shown.one[found.end() :])
    mark = {"open": opened.strip()} if opened.strip() else {"open_pattern": rf"(?=\[{NAME}\()"}
    return {**mark, **closes, "content": "text"}, rest


def _around(before: str, between: str, after: str) -> tuple[str, dict[str, Any], list[str]]:
    """The mark that opens a call, those that close it, and texts around calls that are no content."""
    if not between:
        opened = opening(before)
        return opened, *_ends(after, [], marks_in(before.removesuffix(opened)))
    close = common_start(between, after)
    opened = common_end(before, between[len(close) :])
    if not close:  # the next call, or the end of the turn, closes a call
        begins = marks_in(opened)[:1]
        return opened.removeprefix("".join(begins)), *_ends(after, begins, [*begins, *marks_in(before)])
    texts = before.removesuffix(opened), between[len(close) :].removesuffix(opened), after[len(close) :]
    return opened, {"close": close.strip() or close}, [part for text in texts for part in layout(text)]


def _ends(after: str, begins: list[str], rest: list[str]) -> tuple[dict[str, Any], list[str]]:
    marks = marks_in(after)
    lead = after.partition(marks[0])[0].strip() if marks else after.strip()
    closes = [*begins, *([lead] if lead else marks[:1])]
    return {"close": closes}, [*rest, *marks]
