"""The tokens of a training row, each with what colours it: its probability, a teacher's, or the mask. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp

from nat.wire.training import Span, TrainingRow

SHADES = 9
"""Shades from 0, as expected, to the strongest."""
_NAT_PER_SHADE = 0.25
"""Difference of log probabilities for a shade of `teacher`."""
_MISMATCH_PER_SHADE = 0.02
"""Likewise of `mismatch`: rounding to bfloat16 makes up to some hundredths."""


class Colour(StrEnum):
    """What the colours of tokens show."""

    PROBABILITY = "probability"
    TEACHER = "teacher"
    MISMATCH = "mismatch"
    MASK = "mask"


@dataclass(frozen=True)
class Token:
    """One token, or several that are one character together."""

    text: str
    sampled: bool
    """True if it is in a span: the policy sampled it, or somebody wrote it to be learned."""
    logprob: float | None = None
    """The sampler's, in nats."""
    teacher: float | None = None
    """The teacher's log probability less the sampler's."""
    mismatch: float | None = None
    """The learner's log probability before the update less the sampler's."""

    @property
    def title(self) -> str:
        """Its numbers."""
        parts = [] if self.logprob is None else [f"probability {exp(self.logprob):.3g}, log {self.logprob:.3f}"]
        parts += [] if self.teacher is None else [f"the teacher's log probability is {self.teacher:+.3f} from it"]
        parts += [] if self.mismatch is None else [f"the learner's log probability was {self.mismatch:+.3g} from it"]
        return "; ".join(parts) or ("no log probability" if self.sampled else "prompt")

    def shade(self, colour: Colour) -> int | None:
        """How strongly it is coloured, from 0 to `SHADES`; None if this colour says nothing about it."""
        if not self.sampled:
            return None
        if colour is Colour.MASK:
            return SHADES
        if colour is Colour.PROBABILITY:
            return None if self.logprob is None else round(SHADES * (1 - exp(min(0.0, self.logprob))))
        of_teacher = colour is Colour.TEACHER
        gap, step = (self.teacher, _NAT_PER_SHADE) if of_teacher else (self.mismatch, _MISMATCH_PER_SHADE)
        return None if gap is None else min(SHADES, round(abs(gap) / step))


def row_tokens(
    row: TrainingRow, pieces: Sequence[str | None] | None, most: int, mismatch: Sequence[float | None] = ()
) -> list[Token]:
    """The first tokens of a row; without `pieces`, the text of each token, their ids stand for them.

    `mismatch` has a difference for each sampled token, or is empty.
    """
    gaps = dict(zip(row.targets, mismatch, strict=False))
    spans = {at: span for span in row.spans for at in range(span.start, min(span.stop, most))}
    found: list[Token] = []
    for at, token_id in enumerate(row.token_ids[:most]):
        text = f"{token_id} " if pieces is None else pieces[at]
        if text is not None:
            found.append(_token(text, at, spans.get(at), gaps.get(at)))
    return found


def _token(text: str, at: int, span: Span | None, mismatch: float | None) -> Token:
    if span is None:
        return Token(text, sampled=False)
    place = at - span.start
    logprob = None if span.logprobs is None else span.logprobs[place]
    teacher = None if span.teacher_logprobs is None else span.teacher_logprobs[place]
    difference = None if logprob is None or teacher is None else teacher - logprob
    return Token(text, sampled=True, logprob=logprob, teacher=difference, mismatch=mismatch)


def colours_of(rows: Sequence[TrainingRow], mismatch: Sequence[float | None] = ()) -> list[Colour]:
    """The colours that say something about these rows."""
    spans = [span for row in rows for span in row.spans]
    found = [Colour.PROBABILITY] if any(span.logprobs for span in spans) else []
    found += [Colour.TEACHER] if any(span.teacher_logprobs for span in spans) else []
    return [*found, *([Colour.MISMATCH] if any(gap is not None for gap in mismatch) else []), Colour.MASK]
