"""The rollouts of one epoch or validation: choose some of them, and find which answers were trained."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nat.errors import JournalError, did_you_mean
from nat.runs.journal import Journal
from nat.runs.records import Phase, after_epoch, epoch_number
from nat.runs.rollouts import Outcome, RolloutRecord
from nat.wire.training import TrainingRow

_LISTED = 10


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
    lowest = sorted(scored)
    highest = sorted((-reward, generation, place) for reward, generation, place in scored)
    places = [place for _, _, place in (*lowest[: choice.worst], *highest[: choice.best])]
    places += [place for place, each in enumerate(outcomes) if each.reward is None][: choice.failed]
    places += [place for place, each in enumerate(outcomes) if each.example_id in choice.examples]
    return [outcomes[place] for place in dict.fromkeys(places)]


def trained_tokens(record: RolloutRecord, phase: Phase) -> int:
    """Sampled tokens of the rollout that were submitted for training."""
    if phase is not Phase.TRAIN or record.left_out is not None:
        return 0
    return sum(row.num_sampled for row in record.rows)


def spans(row: TrainingRow) -> Iterator[tuple[bool, list[int]]]:
    """The token ids of a row in turn: prompts (False), and answers that the model sampled (True)."""
    begin = 0
    for span in row.spans:
        if span.start > begin:
            yield False, row.token_ids[begin : span.start]
        yield True, row.token_ids[span.start : span.stop]
        begin = span.stop
    if row.token_ids[begin:]:
        yield False, row.token_ids[begin:]
