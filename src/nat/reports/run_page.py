"""One run: a record of its results so far, and the page about it."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from math import fsum

from nat.data_models.finetuning import BudgetConfig
from nat.data_models.llm_usage import Purpose, added, price_of
from nat.data_models.rollout_failure import FailureCount
from nat.files import folder_bytes
from nat.finetuning.best_model import best_text
from nat.finetuning.budget import budget_of, price
from nat.finetuning.summary import broken_prefixes, choice, compared
from nat.reports.charts import spread
from nat.reports.epoch_table import EpochTable, epoch_table
from nat.reports.overview import RunOverview, overview, scores_text
from nat.reports.text import labelled, printable, table
from nat.runs.journal import Journal
from nat.runs.liveness import ShownState
from nat.runs.plot import duration
from nat.runs.records import (
    BestEpoch,
    EpochRecord,
    RunSummary,
    SparseRecord,
    ValidationRecord,
    after_epoch,
    num_rollouts,
    played_epochs,
    scores_beside,
    total_of,
)
from nat.sizing.memory import bytes_text
from nat.wire.training import LEFT_OUT

_ROWS = 12
"""Epochs in the table, spread over the run."""
_SHARE = 0.005
"""Stages with a smaller share of the time are left out."""


_PURPOSES: Sequence[tuple[Purpose, str]] = (
    ("rollout", "rollouts"),
    ("judge", "evaluators"),
    ("teacher", "the teacher"),
    ("training", "the server's updates"),
    ("checks", "their checks"),
)


class RunReport(SparseRecord):
    """A run's results so far."""

    run: RunOverview
    sentence: str | None = None
    """The verdict in words, on the validations before the first and after the last epoch."""
    summary: RunSummary | None = None
    """None until the run has completed."""
    epochs: list[EpochRecord]
    validations: list[ValidationRecord]
    rollouts: int
    failures: list[FailureCount]
    left_out: dict[str, int]
    """Training rollouts that were not trained on, by cause."""
    best: BestEpoch | None = None
    best_caveat: str | None = None
    """How much of the best score may be luck."""
    seconds: dict[str, float]
    """Seconds of the run, by stage; before its end, of the finished epochs and validations."""
    algorithm: str | None = None
    """As the backend reports it."""
    budget: BudgetConfig | None = None
    """Of the run's configuration."""

    @property
    def lost_messages(self) -> list[str]:
        """What the model has not seen, because its chat template left it out."""
        names = {name for epoch in self.epochs for name in epoch.metrics if name.startswith(f"train/{LEFT_OUT}")}
        return sorted(name.removeprefix(f"train/{LEFT_OUT}").replace("_", " ") for name in names)


def run_report(journal: Journal) -> RunReport:
    """Read everything that the page shows."""
    run, epochs, validations, best = overview(journal), journal.epochs(), journal.validations(), journal.find(BestEpoch)
    settings, summary = (job.training for job in journal.jobs()), journal.find(RunSummary)
    algorithms = (str(each["algorithm"]) for each in settings if each and "algorithm" in each)
    left_out: Counter[str] = Counter()
    for epoch in epochs:
        left_out.update(epoch.left_out)
    judged = len(epochs) if summary is None or summary.judged_epoch is None else summary.judged_epoch
    comparison = compared(validations, judged)
    which = "" if judged == len(epochs) else f"Verdict {after_epoch(judged)}: "
    return RunReport(
        run=run,
        sentence=None if comparison is None else f"{which}{comparison.sentence}",
        summary=summary,
        epochs=epochs,
        validations=validations,
        rollouts=num_rollouts(epochs, validations),
        failures=total_of(epochs, validations),
        left_out=dict(left_out.most_common()),
        best=best,
        best_caveat=None if best is None else choice(best, validations, len(epochs)),
        seconds=_seconds(epochs, validations, None if summary is None else summary.seconds),
        algorithm=", then ".join(name for name, _ in groupby(algorithms)) or None,
        budget=budget_of(journal),
    )


def _seconds(
    epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord], whole: float | None
) -> dict[str, float]:
    """Each second of the run once: rollouts that were played beside an update are not the learner's wait for them."""
    waited = fsum(
        each.metrics.get("time/waiting_for_rollouts", each.metrics.get("time/rollout", 0.0)) for each in epochs
    )
    submit, train, both = (
        fsum(epoch.metrics.get(f"time/{stage}", 0.0) for epoch in epochs) for stage in ("submit", "train", "overlapped")
    )
    spent = {"rollouts": waited, "hand-over": submit, "training": train - both, "both at once": both}
    spent["validations"] = fsum(record.seconds for record in validations)
    known = fsum(epoch.seconds for epoch in epochs) + spent["validations"] if whole is None else whole
    spent["loading, saving and the rest"] = known - fsum(spent.values())
    return {name: seconds for name, seconds in sorted(spent.items(), key=lambda entry: -entry[1]) if seconds > 0}


def run_page(report: RunReport) -> str:
    """The page about a run."""
    run = report.run
    rows = [("State", _state(run)), ("Folder", f"{run.folder}, {bytes_text(folder_bytes(run.folder))}")]
    if run.model:
        rows.append(("Model", run.model + (f", trained by {report.algorithm}" if report.algorithm else "")))
    rows.append(("Epochs", _epochs(report)))
    rows += [("" if place else "Phases", str(phase)) for place, phase in enumerate(run.phases)]
    if rewards := [epoch.avg_reward for epoch in played_epochs(report.epochs)]:
        rows.append(("Reward", f"{rewards[0]:.3f} → {rewards[-1]:.3f} in training"))
    if imitated := [epoch.result for epoch in report.epochs if not epoch.played and epoch.result]:
        rows.append(("File", f"{imitated[0]} → {imitated[-1].removeprefix('loss ')} on its rows"))
    for name, beside in scores_beside(played_epochs(report.epochs)).items():
        values = [*beside.values()]
        rows.append(("", f"{values[0]:.3f} → {values[-1]:.3f} by '{name}', not the reward"))
    if any(record.avg_reward is not None for record in report.validations):
        rows.append(("Held-out", scores_text(run)))
    if report.best is not None:
        rows.append(("Best", best_text(report.best, run.folder)))
        rows += [("", report.best_caveat)] if report.best_caveat else []
    rows += _failed(report)
    if broken := broken_prefixes(report.epochs):
        causes = ", ".join(f"{cause} {count}" for cause, count in broken.items())
        rows.append(("Broken", f"{sum(broken.values())} calls did not continue the tokens before them ({causes})"))
    rows += _left_out(report)
    if report.lost_messages:
        rows.append(("Unseen", f"left out by the chat template: {', '.join(report.lost_messages)}"))
    rows += calls_rows(report.epochs, report.validations, report.budget)
    rows += time_rows(report)
    if report.summary is not None and report.summary.causes:
        rows.append(("Cause", f"{report.summary.causes[0].title}: {report.summary.causes[0].seen}"))
    if report.summary is not None and report.summary.next_step:
        rows.append(("Next", report.summary.next_step))
    twice = "the held-out examples were not played both before the first and after the last epoch"
    verdict = report.sentence or f"No verdict: {twice if report.validations else 'no held-out example was played'}."
    parts, shown = [f"run {run.run_id}", verdict, labelled(rows)], epochs_of(report, _ROWS)
    parts += [table(shown.header, shown.rows)] if report.epochs else []
    return printable("\n\n".join(parts))


def _state(run: RunOverview) -> str:
    text = str(run.state)
    if run.state is ShownState.INTERRUPTED and run.finished_at is None:
        text += ": its process has ended without recording why; the journal ends there"
    return text + (f": {' '.join(run.message.split())}" if run.message else "")


def _epochs(report: RunReport) -> str:
    run = report.run
    text = f"{run.epochs} of {run.num_epochs}" if run.num_epochs else str(run.epochs)
    begun = f", begun {run.created_at:%Y-%m-%d %H:%M} UTC" if run.created_at else ""
    return f"{text}{begun}, {report.rollouts:,} rollouts"


def _failed(report: RunReport) -> list[tuple[str, str]]:
    if not report.failures:
        return []
    failed = sum(each.count for each in report.failures)
    rows = [("Failed", f"{failed} of {report.rollouts:,} rollouts; tracebacks in failures.txt")]
    return rows + [("", str(each)) for each in report.failures]


def _left_out(report: RunReport) -> list[tuple[str, str]]:
    """The causes that are not failures."""
    failures = {each.cause for each in report.failures}
    texts = [f"{count} x {cause}" for cause, count in report.left_out.items() if cause not in failures]
    return [("" if place else "Left out", text) for place, text in enumerate(texts)]


def calls_rows(
    epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord], budget: BudgetConfig | None
) -> list[tuple[str, str]]:
    """Calls and tokens by purpose and LLM, each with its price, and what they cost together."""
    texts = []
    for where, records in (("training", epochs), ("held-out", validations)):
        for purpose, who in _PURPOSES:
            for name, used in added(each.usage.get(purpose, {}) for each in records).items():
                tokens = f"{used.prompt_tokens:,.0f} + {used.completion_tokens:,.0f} tokens"
                known = {} if budget is None else budget.prices
                cost = f", {price_of({purpose: {name: used}}, known):.4g}" if name in known else ""
                texts.append(f"{where}, {who}: {used.calls:,.0f} of {name}, {tokens}{cost}")
    rows = [("" if place else "Calls", text) for place, text in enumerate(texts)]
    if budget is not None:
        limit = "" if budget.limit is None else f" of {budget.limit:.4g}"
        rows.append(("Cost", f"{price([*epochs, *validations], budget.prices):.4g}{limit}"))
    return rows


def time_rows(report: RunReport) -> list[tuple[str, str]]:
    """Where the time went."""
    whole = fsum(report.seconds.values())
    shares = {name: spent / whole for name, spent in report.seconds.items()}
    shown = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= _SHARE)
    return [("Time", f"{duration(whole)}: {shown}")] if shown else []


def epochs_of(report: RunReport, most: int) -> EpochTable:
    """The table of at most so many epochs, evenly spread, with the first and the last."""
    return epoch_table(spread(report.epochs, most), report.validations)
