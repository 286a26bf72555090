"""A condition that keeps a run from learning: its texts, and the rule that finds it in a window of epochs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.window import Window
from nat.runs.records import Finding


class Seen(NamedTuple):
    """The condition in the numbers of one window."""

    share: float
    """Share of the learning signal that reaches this stage of the run and is lost here, from 0 to 1."""
    numbers: str
    """What was seen, as a sentence without its full stop."""
    advice: str = ""
    """What to change in this run, before the remedy that always holds."""


Rule = Callable[[Window, float], Seen | None]
"""Takes the window and the bound; None if the number is in its healthy range, or not known."""


@dataclass(frozen=True)
class Condition:
    """Something that keeps a run from learning."""

    name: str
    title: str
    healthy: str
    """What would be healthy; `{bound:.0%}` stands for the bound."""
    remedy: str
    rule: Rule
    bound: float | str = 0.0
    """The end of the range: a number, or the key of `guards` that sets it."""
    warns_over: int = 0
    """The last epochs over which it is judged after each epoch, to warn; 0 if it never warns."""
    despite_learning: bool = False
    """True if the reward can rise all the same."""
    of_the_end: bool = False
    """True if only a run that has ended can have it."""
    without_rollouts: bool = False
    """True if a run that trains on a file can have it, too."""

    def range_in(self, guards: GuardsConfig) -> str:
        """The healthy range under these guards."""
        return self.healthy.format(bound=self._bound_in(guards))

    def _bound_in(self, guards: GuardsConfig) -> float:
        return float(dict(guards)[self.bound]) if isinstance(self.bound, str) else self.bound

    def seen_in(self, window: Window) -> Seen | None:
        """What is out of the healthy range, whether or not the run has learned."""
        return self.rule(window, self._bound_in(window.guards))

    def found(self, window: Window) -> Finding | None:
        """The finding, with the whole share that it takes; None if the window does not show the condition.

        Learning excuses most of them, unless something has gone wrong since; a run on a file has no rollouts.
        """
        excused = window.learned and not self.despite_learning and not window.since_best
        if excused or not (window.played or self.without_rollouts):
            return None
        if (seen := self.seen_in(window)) is None:
            return None
        return Finding(
            cause=self.name,
            title=self.title,
            share=min(1.0, max(0.0, seen.share)),
            seen=seen.numbers,
            healthy=self.range_in(window.guards),
            remedy=f"{seen.advice} {self.remedy}".strip(),
        )


def condition(**fields: Any) -> Callable[[Rule], Condition]:
    """Make a condition of the decorated rule, whose name becomes that of the condition."""
    return lambda rule: Condition(name=rule.__name__, rule=rule, **fields)
