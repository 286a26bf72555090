"""A cause of a flat reward: its texts, and the rule that finds it in the numbers of a run."""

from collections.abc import Callable
from dataclasses import dataclass

from nat.finetuning.diagnosis.evidence import Evidence


@dataclass(frozen=True)
class Symptom:
    """The cause in the numbers of one run."""

    share: float
    """Share of the learning signal that reaches this stage of the run and is lost here, from 0 to 1."""
    numbers: str
    """What was seen, as a sentence without its full stop."""
    advice: str = ""
    """What to change in this run, before the remedy that always holds."""


Check = Callable[[Evidence], Symptom | None]
"""None if the number is in its healthy range, or not known."""


@dataclass(frozen=True)
class Cause:
    """One reason why a reward stays flat."""

    name: str
    title: str
    measure: str
    """The number that shows it, with its unit."""
    healthy: str
    """Its healthy range."""
    source: str
    """Where the range comes from."""
    remedy: str
    check: Check
    despite_learning: bool = False
    """True if the training reward can rise all the same."""
    of_the_end: bool = False
    """True if only a run that has ended can have it."""
    without_rollouts: bool = False
    """True if a run that trains on a file can have it, too."""


def cause(
    *,
    title: str,
    measure: str,
    healthy: str,
    source: str,
    remedy: str,
    despite_learning: bool = False,
    of_the_end: bool = False,
    without_rollouts: bool = False,
) -> Callable[[Check], Cause]:
    """Make a cause of the decorated rule, whose name becomes that of the cause."""

    def decorate(check: Check) -> Cause:
        return Cause(
            name=check.__name__,
            title=title,
            measure=measure,
            healthy=healthy,
            source=source,
            remedy=remedy,
            check=check,
            despite_learning=despite_learning,
            of_the_end=of_the_end,
            without_rollouts=without_rollouts,
        )

    return decorate
