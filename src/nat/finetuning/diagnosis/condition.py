"""A condition of a run: its texts, and the rule that finds it in a window of epochs."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.window import Window
from nat.runs.records import Finding


@dataclass(frozen=True)
class Seen:
    """The condition in the numbers of one window."""

    share: float
    """Share of the learning signal that reaches this stage of the run and is lost here, from 0 to 1."""
    numbers: str
    """What was seen, as a sentence without its full stop."""
    advice: str = ""
    """What to change in this run, before the remedy that always holds."""
    learning_rate: float | None = None
    """The one to try."""
    pastes: bool = True
    """False if the condition's settings do not help this run."""


Rule = Callable[[Window, float], Seen | None]
"""Takes the window and the bound; None if the number is in its healthy range, or not known."""


@dataclass(frozen=True)
class Condition:
    """Something that keeps a run from learning."""

    name: str
    title: str
    measure: str
    """The number that shows it, with its unit."""
    healthy: str
    """Its healthy range; `{bound:.0%}` stands for the bound."""
    source: str
    """Where the range comes from."""
    remedy: str
    rule: Rule
    settings: str = ""
    """YAML that does what the remedy says. Words in capitals stand for the run's own names, and for its numbers as the
    remedy changes them: see `nat.finetuning.diagnosis.gather`."""
    bound: float | str = 0.0
    """The end of the range: a number, or the key of `guards` that sets it."""
    warns_over: int = 0
    """The last epochs over which it is judged after each epoch, to warn; 0 if it never warns."""
    warns_from: int = 1
    """Fewest epochs for a warning."""
    despite_learning: bool = False
    """True if the training reward can rise all the same."""
    alone: bool = False
    """True if it says something only where nothing else is found."""
    of_the_end: bool = False
    """True if only a run that has ended can have it."""
    without_rollouts: bool = False
    """True if a run that trains on a file can have it, too."""

    def bound_in(self, guards: GuardsConfig) -> float:
        """The bound under these guards."""
        return float(dict(guards)[self.bound]) if isinstance(self.bound, str) else self.bound

    def range_in(self, guards: GuardsConfig) -> str:
        """The healthy range under these guards."""
        return self.healthy.format(bound=self.bound_in(guards))

    def settings_with(self, words: Mapping[str, str]) -> str:
        """The settings with the names and numbers of a run."""
        return re.sub(r"\b[A-Z_]+\b", lambda word: words.get(word[0], word[0]), self.settings)

    def found(self, window: Window, *, excused: bool = False) -> Finding | None:
        """The finding, with the whole share that it takes; None if the window does not show the condition.

        A run that is `excused` learns; one that trains on a file has no rollouts.
        """
        if (excused and not self.despite_learning) or not (window.played or self.without_rollouts):
            return None
        seen = self.rule(window, self.bound_in(window.guards))
        if seen is None:
            return None
        words = dict(window.facts.words)
        if words and seen.learning_rate is not None:
            words["LEARNING_RATE"] = f"{seen.learning_rate:.2g}"
        remedy = reworded(f"{seen.advice} {self.remedy}".strip(), window.facts.wording)
        return Finding(
            cause=self.name,
            title=self.title,
            share=min(1.0, max(0.0, seen.share)),
            seen=seen.numbers,
            healthy=self.range_in(window.guards),
            remedy=remedy,
            settings=self.settings_with(words) if words and seen.pastes else "",
        )


def reworded(text: str, wording: Mapping[str, str]) -> str:
    """The text with the places of one run or probe for those of the latest run."""
    for usual, here in wording.items():
        text = text.replace(usual, here)
    return text


def condition(**fields: Any) -> Callable[[Rule], Condition]:
    """Make a condition of the decorated rule, whose name becomes that of the condition."""
    return lambda rule: Condition(name=rule.__name__, rule=rule, **fields)
