"""Text for a terminal: tables, a small curve, and characters that could control the terminal made visible."""

import math
import unicodedata
from collections.abc import Iterable, Sequence

from nat.data_models.score import is_score
from nat.secrets import redact

_BLOCKS = "▁▂▃▄▅▆▇█"
_JOINERS = "\u200c\u200d"
"""Invisible, but part of words in some scripts and of emoji."""
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control and format characters (such as those that reverse text), surrogates, separators."""


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
    lines = [header, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def sparkline(values: Sequence[float], width: int = 60, *, limits: tuple[float, float] | None = None) -> str:
    """The values as a row of blocks, averaged down to `width` columns; `limits` are those of several curves.

    What is no finite number is left out.
    """
    values = [value for value in values if is_score(value)]
    if not values:
        return ""
    size = math.ceil(len(values) / width)
    means = [sum(part) / len(part) for part in (values[i : i + size] for i in range(0, len(values), size))]
    low, high = limits or (min(means), max(means))
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((mean - low) * scale)] for mean in means)
