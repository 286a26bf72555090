"""The tokens of a training row, each with what colours it: its probability, or the mask. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp

from nat.wire.training import TrainingRow

SHADES = 9
"""Shades from 0, as expected, to the strongest."""


class Colour(StrEnum):
    """What the colours of tokens show."""

    PROBABILITY = "probability"
    MASK = "mask"


@dataclass(frozen=True)
class Token:
    """One token, or several that are one character together."""

    text: str
    sampled: bool
    """True if it is in a span: the policy sampled it, or somebody wrote it to be learned."""
    logprob: float | None = None
    """The sampler's, in nats."""

    @property
    def title(self) -> str:
        """Its numbers."""
        if self.logprob is None:
            return "no log probability" if self.sampled else "prompt"
        return f"probability {exp(self.logprob):.3g}, log {self.logprob:.3f}"

    def shade(self, colour: Colour) -> int | None:
        """How strongly it is coloured, from 0 to `SHADES`; None if this colour says nothing about it."""
        if not self.sampled:
            return None
        if colour is Colour.MASK:
            return SHADES
        return None if self.logprob is None else round(SHADES * (1 - exp(min(0.0, self.logprob))))


def row_tokens(row: TrainingRow, pieces: Sequence[str | None] | None, most: int) -> list[Token]:
    """The first tokens of a row; without `pieces`, the text of each token, their ids stand for them."""
    spans = {at: span for span in row.spans for at in range(span.start, min(span.stop, most))}
    found: list[Token] = []
    for at, token_id in enumerate(row.token_ids[:most]):
        text = f"{token_id} " if pieces is None else pieces[at]
        if text is not None:
            span = spans.get(at)
            logprob = span.logprobs[at - span.start] if span is not None and span.logprobs is not None else None
            found.append(Token(text, sampled=span is not None, logprob=logprob))
    return found


def colours_of(rows: Sequence[TrainingRow]) -> list[Colour]:
    """The colours that say something about these rows."""
    known = any(span.logprobs for row in rows for span in row.spans)
    return [*([Colour.PROBABILITY] if known else []), Colour.MASK]
