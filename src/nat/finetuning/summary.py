"""The summary of a run. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nat.data_models.finetuning import BudgetConfig
from nat.eval.failures import FAILURES_NAME
from nat.finetuning.budget import price
from nat.finetuning.verdict import Comparison, compare_validations
from nat.runs.records import (
    BestEpoch,
    BestMeasure,
    EpochRecord,
    Finding,
    JobRecord,
    PhaseVerdict,
    RunRecord,
    RunState,
    RunSummary,
    TrainingPhase,
    ValidationRecord,
    num_rollouts,
    total_of,
)

_PACKING = ("row_tokens", "packed_tokens", "unique_tokens")


def compared(validations: Sequence[ValidationRecord], epochs: int, *, first: int = 0) -> Comparison | None:
    """The held-out examples before the epoch `first` and after `epochs` epochs; None without two such validations."""
    by_epoch = {record.epoch: record for record in validations}
    if epochs == first or first not in by_epoch or epochs not in by_epoch:
        return None
    last = by_epoch[epochs]
    found, expected = compare_validations(by_epoch[first], last), last.expected
    if found is None or expected is None or expected.share * (len(last.scores) - len(last.copies)) < 2:
        return found
    constant = f" The best constant answer, {expected.text!r}, would be right for {expected.share:.0%}."
    return replace(found, constant=constant)


def phase_verdicts(
    phases: Sequence[TrainingPhase], validations: Sequence[ValidationRecord], num_epochs: int
) -> list[PhaseVerdict]:
    """The verdict of each phase that has begun, of a run with so many finished epochs."""
    ends, verdicts = [*(phase.first_epoch for phase in phases[1:]), num_epochs], []
    for phase, end in zip(phases, ends, strict=False):
        comparison = compared(validations, end, first=phase.first_epoch)
        sentence = None if comparison is None else comparison.sentence
        known = {"first_epoch": phase.first_epoch, "epochs": end - phase.first_epoch, "sentence": sentence}
        verdicts.append(PhaseVerdict(name=phase.name, **known, **_held_out(comparison, PhaseVerdict)))
    return verdicts


def _held_out(comparison: Comparison | None, record: type[RunRecord]) -> dict[str, Any]:
    """The fields of the record that the comparison has."""
    found = {} if comparison is None else vars(comparison)
    return {name: value for name, value in found.items() if name in record.model_fields}


def broken_prefixes(epochs: Sequence[EpochRecord]) -> dict[str, int]:
    """Broken prefixes of all epochs by cause, the most frequent first."""
    causes: Counter[str] = Counter()
    for record in epochs:
        causes.update(record.broken_by)
    return dict(causes.most_common())


def summarise(
    run_id: str,
    comparison: Comparison | None,
    jobs: Sequence[JobRecord],
    *,
    played: Sequence[EpochRecord],
    validations: Sequence[ValidationRecord],
    epochs: int,
    judged_epoch: int | None = None,
    state: RunState = RunState.COMPLETED,
    ended_early: str | None = None,
    seconds: float,
    model: str | None,
    served_model: str | None = None,
    best: BestEpoch | None = None,
    best_model: str | None = None,
    causes: Sequence[Finding] = (),
    phases: Sequence[TrainingPhase] = (),
    budget: BudgetConfig | None = None,
) -> RunSummary:
    """The record in `summary.json`; without a comparison, the fields about held-out examples are None."""
    failures = total_of(played, validations)
    return RunSummary(
        run_id=run_id,
        epochs=epochs,
        judged_epoch=None if comparison is None else judged_epoch,
        state=state,
        ended_early=ended_early,
        seconds=seconds,
        tokens_trained=sum(job.tokens_trained for job in jobs),
        **{name: round(sum(job.metrics.get(name, 0) for job in jobs)) for name in _PACKING},
        broken_by=broken_prefixes(played),
        rollouts=num_rollouts(played, validations),
        cost=None if budget is None else price([*played, *validations], budget.prices),
        failures=failures,
        failures_file=FAILURES_NAME if failures else None,
        model=model,
        served_model=served_model,
        best=best,
        best_caveat=None if best is None else choice(best, validations, len(played)),
        best_model=best_model,
        causes=list(causes),
        next_step=causes[0].remedy if causes else None,
        phases=phase_verdicts(phases, validations, len(played)),
        **_held_out(comparison, RunSummary),
    )


def path_in_run(path: Path | None, run_dir: Path) -> str | None:
    """The path, relative if it is inside the run's folder."""
    if path is None:
        return None
    whole = path.absolute()
    for folder in (run_dir.absolute(), run_dir.resolve()):  # a backend resolves links
        if whole.is_relative_to(folder):
            return str(whole.relative_to(folder))
    return str(whole)


def choice(best: BestEpoch, validations: Sequence[ValidationRecord], num_epochs: int) -> str | None:
    """How much of the best score may be luck, in a sentence; None if nothing was chosen."""
    if best.measure is BestMeasure.TRAINING:
        return f"the highest of {num_epochs} epochs' mean rewards, so partly luck" if num_epochs > 1 else None
    if len(validations) < 2:
        return None
    return f"the highest of {len(validations)} validations on the same examples, so probably too high"
