"""Texts as lists of marks, words and spaces, so that a comparison never cuts a mark."""

import re
from collections.abc import Collection, Iterable
from itertools import takewhile, zip_longest

_PARTS = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]|\w+|\s|.", re.DOTALL)
NAME = r"[\w.-]{1,128}"
"""Of a function or key; a longer one would be searched again with each piece of a text."""
SPACE = r"\s{0,32}"
WORD = "\ue00f"
"""Stands for a word or number that differs."""
_MARK = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]|<[^<>]{1,80}>")


def parts(text: str) -> list[str]:
    """Marks, words, and single other characters."""
    return _PARTS.findall(text)


def common_start(one: str, other: str) -> str:
    """The longest common beginning that cuts no mark."""
    return "".join(_common(parts(one), parts(other)))


def common_end(one: str, other: str) -> str:
    """The longest common end that cuts no mark."""
    return "".join(_common(parts(one)[::-1], parts(other)[::-1])[::-1])


def _common(one: list[str], other: list[str]) -> list[str]:
    return [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]


def marks_in(text: str) -> list[str]:
    """The marks of a text: `<…>` and `[CAPITALS]`."""
    return _MARK.findall(text)


def layout(text: str) -> list[str]:
    """What of a text around calls is no content: its marks, or all of it if words stand between them."""
    found = marks_in(text)
    return [text.strip()] if found and has_words(text) else found


def has_words(text: str) -> bool:
    """True for a text that is more than marks."""
    return bool(_MARK.sub("", text).strip())


def letters(text: str) -> str:
    """The text's letters."""
    return "".join(filter(str.isalpha, text))


def disjoint(marks: Iterable[str]) -> list[str]:
    """The same marks where none begins with another one: in a stream the parser would take the shorter one.

    What is left of a longer one is a mark itself, or there is no shorter one. Tokenizers have thousands of marks.
    """
    known, before = dict.fromkeys(mark for mark in marks if mark), dict[str, None]()
    while known != before:
        before, lengths = dict(known), sorted({len(mark) for mark in known})
        for mark in before:
            rest = mark
            while rest in known and (short := _known_start(rest, known, lengths)):
                longer, rest = rest, rest.removeprefix(short).strip()
                if _MARK.match(rest):
                    del known[longer]
                    known[rest] = None
                else:
                    del known[short]
                    rest = longer
    return [*known]


def _known_start(mark: str, known: Collection[str], lengths: Iterable[int]) -> str:
    """The shortest known mark with which a longer one begins; empty if there is none."""
    starts = (mark[:length] for length in lengths if length < len(mark))
    return next((start for start in starts if start in known), "")


def opening(text: str) -> str:
    """What of a text before a call belongs to it: its last mark, or what comes after the marks of earlier parts."""
    rest = re.sub(rf"\A(?:{_MARK.pattern}|\s)*", "", text)
    last = "".join(marks_in(text)[-1:])
    return last + rest if not rest or text.endswith(last + rest) else rest


def pattern(text: str, wild: dict[str, str]) -> str:
    """A regular expression for a text, with any white space for its white space; keys of `wild` stand for patterns."""
    signs = "|".join([*map(re.escape, wild), r"\s+"])
    split = re.split(f"({signs})", text)
    return "".join(wild.get(part) or (SPACE if part.isspace() else re.escape(part)) for part in split if part)


def alike(one: str, other: str) -> str:
    """The text with a sign for words and numbers that differ from those of another one."""
    pairs = list(zip_longest(parts(one), parts(other), fillvalue=""))[: len(parts(one))]
    return "".join(WORD if a != b and a.isalnum() and (b.isalnum() or b == WORD) else a for a, b in pairs)
