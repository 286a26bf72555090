"""The rollouts of one epoch or validation: choose some of them, and show them in full or a line each."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from nat.errors import JournalError, did_you_mean
from nat.reports.conversation import RowText, rollout_text, trained_tokens
from nat.reports.text import one_line, printable, table
from nat.runs.journal import Journal
from nat.runs.records import Phase, after_epoch, epoch_number
from nat.runs.rollouts import Outcome, RolloutRecord

_LISTED = 10
_CELL = 60


@dataclass(frozen=True)
class RolloutChoice:
    """Which rollouts of an epoch to show in detail; by default none."""

    worst: int = 0
    """The ones with the lowest reward."""
    best: int = 0
    failed: int = 0
    """The first ones without a reward."""
    examples: Sequence[str] = ()

    @property
    def any(self) -> bool:
        return bool(self.worst or self.best or self.failed or self.examples)


def played_name(phase: Phase, epoch: int) -> str:
    """What was played, for people."""
    return f"epoch {epoch_number(epoch)}" if phase is Phase.TRAIN else f"held-out examples {after_epoch(epoch)}"


def whole(journal: Journal, phase: Phase, epoch: int, outcomes: Iterable[Outcome]) -> Iterator[RolloutRecord]:
    """The records of these rollouts, one at a time."""
    for each in outcomes:
        yield from journal.rollouts(phase, epoch, each.example_id, each.generation)


def check_played(journal: Journal, phase: Phase, epoch: int) -> None:
    """Raise JournalError if the journal has no rollouts of an epoch or validation."""
    train, held_out = journal.played(Phase.TRAIN), journal.played(Phase.VALIDATION)
    if epoch in (train if phase is Phase.TRAIN else held_out):
        return
    there = [f"epochs {epoch_number(train[0])} to {epoch_number(train[-1])}"] if train else []
    there += [f"held-out examples {', '.join(map(after_epoch, held_out))}"] if held_out else []
    raise JournalError(
        f"the journal of {journal.run_dir} has no rollouts of {played_name(phase, epoch)}; "
        f"it has {' and '.join(there) or 'none at all'}",
        hint="--epoch N is an epoch as the progress counts them, from 1; --validation N the held-out examples after "
        "epoch N, 0 before training",
    )


def chosen(outcomes: Sequence[Outcome], choice: RolloutChoice) -> list[Outcome]:
    """The rollouts to show: the worst first, then the best, the failed, and those of the examples; each once.

    Of equal rewards, first generations come first, so that few rollouts show many examples.

    Raises:
        JournalError: there is no such example; the message has some that there are.

    """
    ids = {each.example_id for each in outcomes}
    if unknown := [name for name in choice.examples if name not in ids]:
        listed = ", ".join(sorted(ids, key=lambda name: (len(name), name))[:_LISTED])
        more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
        raise JournalError(
            f"no rollout of example '{unknown[0]}' there; the examples are {listed}{more}."
            f"{did_you_mean(unknown[0], ids)}",
            hint="give the id of an example that was played in this epoch",
        )
    scored = [(each.reward, each.generation, place) for place, each in enumerate(outcomes) if each.reward is not None]
    highest = sorted(scored, key=lambda each: (-each[0], *each[1:]))
    places = [place for _, _, place in (*sorted(scored)[: choice.worst], *highest[: choice.best])]
    places += [place for place, each in enumerate(outcomes) if each.reward is None][: choice.failed]
    places += [place for place, each in enumerate(outcomes) if each.example_id in choice.examples]
    return [outcomes[place] for place in dict.fromkeys(places)]


@dataclass(frozen=True)
class PlayedRollouts:
    """The rollouts of one epoch or validation of a run."""

    run_id: str
    phase: Phase
    epoch: int
    outcomes: Sequence[Outcome]
    """Of all of them."""
    records: Iterable[RolloutRecord]
    """Those to show, one at a time."""

    @property
    def title(self) -> str:
        rewards = [each.reward for each in self.outcomes if each.reward is not None]
        missing = len(self.outcomes) - len(rewards)
        mean = f", mean reward {sum(rewards) / len(rewards):.3f}" if rewards else ""
        failed = f", {missing} without a reward (--failed {missing} shows them)" if missing else ""
        return f"run {self.run_id}, {played_name(self.phase, self.epoch)}: {len(self.outcomes)} rollouts{mean}{failed}"


def rollouts_page(played: PlayedRollouts, *, whole: bool, row_text: RowText | None = None) -> str:
    """The rollouts in full, or a line for each of them."""
    if not whole:
        return printable("\n\n".join([played.title, _index(played)]))
    pages = [rollout_text(record, played.phase, row_text) for record in played.records]
    return "\n\n\n".join([printable(played.title), *(pages or ["No rollout is of this kind."])])


def _index(played: PlayedRollouts) -> str:
    header = ("example", "generation", "reward", "calls", "trained tokens", "left out, or output")
    rows = [
        (
            one_line(record.example_id, _CELL),
            str(record.generation),
            "" if record.reward is None else f"{record.reward:.3f}",
            "" if record.num_calls is None else str(record.num_calls),
            str(trained_tokens(record, played.phase)),
            one_line(str(record.left_out) if record.left_out else record.output or "", _CELL),
        )
        for record in played.records
    ]
    return table(header, rows, left=len(header))


def rollouts_record(played: PlayedRollouts, row_text: RowText | None = None) -> dict[str, JsonValue]:
    """The rollouts in full; with `row_text` also their rows, as tokens and as text."""
    rollouts = []
    for record in played.records:
        fields = json.loads(record.model_dump_json(exclude=set() if row_text else {"rows"}))
        rollouts.append(fields | ({"row_texts": [*map(row_text, record.rows)]} if row_text else {}))
    return {"run_id": played.run_id, "phase": played.phase.value, "epoch": played.epoch, "rollouts": rollouts}
