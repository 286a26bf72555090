"""Text for a terminal: tables, and characters that could control the terminal made visible."""

import unicodedata
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nat.secrets import redact

_JOINERS = "\u200c\u200d"
"""Invisible, but part of words in some scripts and of emoji."""
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control and format characters (such as those that reverse text), surrogates, separators."""
_UNBROKEN = 10_000
"""Columns that no line of a table reaches, so that pipes get whole lines."""


def printable(text: str) -> str:
    r"""The text without secrets, with control characters as escapes such as `\x1b`; line breaks and tabs stay.

    Whatever a model wrote, printing it cannot move the cursor, change colours or hide text.
    """
    return "".join(map(_visible, redact(text)))


def _visible(char: str) -> str:
    if char in "\n\t" or char in _JOINERS or unicodedata.category(char) not in _INVISIBLE:
        return char
    return char.encode("unicode_escape", "surrogatepass").decode()


def one_line(text: str, width: int) -> str:
    """The text on one line, cut to `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def indented(text: str, prefix: str) -> list[str]:
    """The lines of a text, each after the prefix, so that none looks like a line of the page."""
    return [f"{prefix}{line}".rstrip() for line in printable(text).split("\n")]


def labelled(rows: Iterable[tuple[str, str]]) -> str:
    """Lines of a label and a text."""
    rows = list(rows)
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {text}".rstrip() for label, text in rows)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Columns with two blanks between them; the first `left` are aligned to the left, the others to the right."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    for place, name in enumerate(header):
        drawn.add_column(Text(name), justify="left" if place < left else "right", no_wrap=True)
    for row in rows:
        drawn.add_row(*map(Text, row))
    console = Console(width=_UNBROKEN, color_system=None)
    with console.capture() as capture:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
