"""What each page shows, read from a journal: records for the templates."""

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from nat.dashboard.rendering import shade
from nat.errors import JournalError
from nat.finetuning.diagnosis.gather import guards_of
from nat.reports.charts import Chart, histogram_chart, reward_chart
from nat.reports.conversation import ShownConversation, conversations, outcome_text, reasoning_text, remarks
from nat.reports.judged import JudgedNumber, judged_numbers
from nat.reports.overview import RunOverview, overview
from nat.reports.rollouts import played_name
from nat.reports.run_page import RunReport, calls_rows, run_report, time_rows
from nat.reports.tokens import Token, row_tokens, tokenizer_of
from nat.runs.journal import Journal
from nat.runs.outcomes import GroupOutcomes, groups_of, histogram, rewards_of
from nat.runs.recorded_config import config_of
from nat.runs.records import Phase, ValidationRecord, epoch_number
from nat.runs.rollouts import Outcome, RolloutRecord

GROUPS_ON_PAGE = 50
EPOCHS_ON_PAGE = 100
_TOKENS_SHOWN = 3000
"""Tokens of a row that a page shows."""


@dataclass(frozen=True)
class Links:
    """Addresses of the pages of a run; none in a file that is sent."""

    run: str

    def epoch(self, phase: str, epoch: int, page: str = "", **query: Any) -> str:
        """A page about an epoch; its number counts as people do: from 1, and for held-out examples what was trained."""
        shown = epoch_number(epoch) if phase == Phase.TRAIN else epoch
        words = urlencode(query, errors="backslashreplace")
        return f"{self.run}/{Phase(phase).value}/{shown}{page}" + (f"?{words}" if words else "")

    def rollout(self, phase: str, epoch: int, example_id: str, generation: int, **query: Any) -> str:
        return self.epoch(phase, epoch, "/rollout", id=example_id, generation=generation, **query)


def count_in(text: str) -> int | None:
    """The count that a part of an address is; None for anything else, and for more than nine digits."""
    return int(text) if text.isdecimal() and len(text) < 10 else None


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    run: RunOverview
    trained: AbstractSet[int]
    """Epochs that have rollouts."""
    validated: AbstractSet[int]
    """Likewise, how many epochs of training were behind the weights of validations."""

    @property
    def unfinished(self) -> int | None:
        """The epoch whose rollouts are played and whose update is not done."""
        return max((epoch for epoch in self.trained if epoch >= self.run.epochs), default=None)

    @property
    def seen(self) -> str:
        """Changes whenever the run's page does."""
        return f"{self.run.state}-{self.run.epochs}-{self.unfinished}-{len(self.validated)}".replace(" ", "_")


def progress_of(journal: Journal) -> Progress:
    """Read it without the records of the epochs, since a browser asks every few seconds."""
    return Progress(overview(journal), set(journal.played(Phase.TRAIN)), set(journal.played(Phase.VALIDATION)))


@dataclass(frozen=True)
class RunView:
    """The page of a run."""

    report: RunReport
    curve: Chart | None
    judged: Sequence[JudgedNumber]
    progress: Progress
    calls: Sequence[tuple[str, str]]
    """What calls took and cost, and where the time went."""


def run_view(journal: Journal, links: Links | None = None) -> RunView:
    """Read a run's page; with `links`, the points of its first chart lead to epochs."""
    report = run_report(journal)
    reward = reward_chart(report.epochs, report.validations)
    progress = progress_of(journal)
    if reward is not None and links is not None:
        reward = replace(reward, links=[_address(links, round(at), progress) for at in reward.x])
    return RunView(
        report=report,
        curve=reward,
        judged=judged_numbers(report.epochs, guards_of(config_of(journal.info().config_text))),
        progress=progress,
        calls=[*calls_rows(report.epochs, report.validations, report.budget), *time_rows(report)],
    )


def _address(links: Links, at: int, progress: Progress) -> str:
    """Where the point of an epoch, counted from 1, leads; empty if the journal has no rollouts of it."""
    if at - 1 in progress.trained:
        return links.epoch(Phase.TRAIN, at - 1)
    return links.epoch(Phase.VALIDATION, at) if at in progress.validated else ""


@dataclass(frozen=True)
class Cell:
    """A rollout in a grid."""

    outcome: Outcome
    shade: str
    link: str
    label: str
    """For readers who do not see the colour."""


@dataclass(frozen=True)
class GroupRow:
    """The generations of one example."""

    group: GroupOutcomes
    link: str
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Page:
    """Which part of a long list is shown."""

    number: int
    size: int
    total: int

    @property
    def last(self) -> int:
        return max(1, -(-self.total // self.size))

    @property
    def begin(self) -> int:
        return (self.number - 1) * self.size


def paged(number: int, size: int, total: int) -> Page:
    """The page of this number, or the nearest one that there is."""
    page = Page(max(1, number), size, total)
    return page if page.number <= page.last else replace(page, number=page.last)


@dataclass(frozen=True)
class EpochView:
    """The page of an epoch or a validation."""

    title: str
    rollouts: int
    page: Page
    """Of the examples."""
    rows: Sequence[GroupRow]


def epoch_title(phase: Phase, epoch: int) -> str:
    """What was played, as a heading."""
    name = played_name(phase, epoch)
    return name[0].upper() + name[1:]


def epoch_view(journal: Journal, links: Links, phase: Phase, epoch: int, number: int) -> EpochView:
    """A page of the groups of an epoch.

    Raises:
        JournalError: the epoch was not played.

    """
    examples = journal.examples(phase, epoch)
    if not examples:
        raise JournalError(f"{epoch_title(phase, epoch)}: no rollouts", hint="choose an epoch of the run's page")
    page = paged(number, GROUPS_ON_PAGE, len(examples))
    shown = [name for name, _ in examples[page.begin : page.begin + page.size]]
    outcomes = journal.outcomes(phase, epoch, shown)
    rewards = rewards_of(outcomes) or [0.0]
    limits = min(0.0, *rewards), max(1.0, *rewards)
    rows = [
        GroupRow(
            group,
            links.epoch(phase, epoch, "/example", id=group.example_id),
            [_cell(each, links, phase, epoch, limits) for each in group.outcomes],
        )
        for group in groups_of(outcomes)
    ]
    return EpochView(epoch_title(phase, epoch), sum(count for _, count in examples), page, rows)


def _cell(outcome: Outcome, links: Links, phase: Phase, epoch: int, limits: tuple[float, float]) -> Cell:
    reward = "no reward" if outcome.reward is None else f"reward {outcome.reward:.3f}"
    why = f", left out: {outcome.left_out}" if outcome.left_out else ""
    return Cell(
        outcome,
        shade(outcome.reward, *limits),
        links.rollout(phase, epoch, outcome.example_id, outcome.generation),
        f"generation {outcome.generation}: {reward}{why}",
    )


@dataclass(frozen=True)
class RewardsView:
    """The histogram of an epoch, with the rollouts that it has no bar for."""

    chart: Chart | None
    without: int
    """Rollouts without a reward."""
    left_out: Sequence[tuple[str, int]]
    """Causes, the most frequent first."""


def rewards_view(outcomes: Sequence[Outcome]) -> RewardsView:
    """What a page says of an epoch's rewards."""
    causes = Counter(each.left_out for each in outcomes if each.left_out)
    return RewardsView(
        histogram_chart(histogram(outcomes)), len(outcomes) - len(rewards_of(outcomes)), causes.most_common()
    )


@dataclass(frozen=True)
class TokenRow:
    """A training row as tokens."""

    tokens: Sequence[Token]
    total: int
    sampled: int


@dataclass(frozen=True)
class RolloutView:
    """The page of a rollout."""

    record: RolloutRecord
    outcome: str
    conversations: Sequence[ShownConversation]
    reasoning: str | None
    remarks: Sequence[str]


@dataclass(frozen=True)
class TokensView:
    """The tokens of a rollout's rows."""

    rows: Sequence[TokenRow]
    problem: str | None
    """Why token ids stand in place of texts."""


def rollout_view(record: RolloutRecord, phase: Phase) -> RolloutView:
    """A rollout in words."""
    return RolloutView(
        record, outcome_text(record, phase), conversations(record, phase), reasoning_text(record), remarks(record)
    )


def tokens_view(journal: Journal, record: RolloutRecord) -> TokensView:
    """Its tokens, with their texts if the run's tokenizer is found."""
    problem, pieces = None, None
    try:
        pieces = tokenizer_of(journal).pieces if record.rows else None
    except JournalError as error:
        problem = error.message
    rows = [
        TokenRow(
            row_tokens(row, pieces and pieces(row.token_ids[:_TOKENS_SHOWN]), _TOKENS_SHOWN),
            len(row.token_ids),
            row.num_sampled,
        )
        for row in record.rows
    ]
    return TokensView(rows, problem)


def outcomes_of(journal: Journal, phase: Phase, epoch: int, example_id: str) -> list[Outcome]:
    """The generations of an example.

    Raises:
        JournalError: there are none.

    """
    found = journal.outcomes(phase, epoch, [example_id])
    if not found:
        raise JournalError(f"{epoch_title(phase, epoch)} has no rollout of that example", hint="choose one of its page")
    return found


@dataclass(frozen=True)
class HeldOutRow:
    """A held-out example at two times."""

    example_id: str
    before: float | None
    after: float | None
    question: str = ""
    expected: str = ""
    answers: Sequence[str] = ("", "")
    """Before and after; of a rollout that failed, its error."""

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before


def held_out_rows(before: ValidationRecord, after: ValidationRecord) -> list[HeldOutRow]:
    """The examples of two validations, the ones that fell most first; those without a difference come last."""
    names = dict.fromkeys([*before.scores, *after.scores])
    rows = [HeldOutRow(name, before.scores.get(name), after.scores.get(name)) for name in names]
    return sorted(rows, key=lambda row: (row.difference is None, row.difference or 0.0))


def with_answers(
    journal: Journal, rows: Sequence[HeldOutRow], before: ValidationRecord, after: ValidationRecord
) -> list[HeldOutRow]:
    """The rows with what was asked and answered in the first rollout of each."""
    found = []
    for row in rows:
        played = [next(journal.rollouts(Phase.VALIDATION, at.epoch, row.example_id), None) for at in (before, after)]
        asked = next(((each.question, each.expected) for each in played if each), ("", ""))
        answers = [(each.output or each.error or "") if each else "" for each in played]
        found.append(replace(row, question=asked[0], expected=asked[1], answers=answers))
    return found
