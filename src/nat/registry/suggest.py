"""The words of "did you mean"."""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, with a leading blank, or nothing if no known word is close."""
    folded = {k.casefold(): k for k in sorted(known, reverse=True)}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return f" Did you mean '{folded[close[0]]}'?" if close else ""


def one_of(known: Iterable[str]) -> str:
    """The known words in order, for the end of a sentence."""
    return ", ".join(sorted(known)) or "none"
