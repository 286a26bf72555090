"""The table of epochs, the same in the live view, on a run's pages and in its report. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nat.finetuning.metrics import STALE_ROWS
from nat.runs.records import EpochRecord, ValidationRecord, epoch_number, held_out_means


def _metric(name: str, form: str) -> Callable[[EpochRecord], str]:
    return lambda epoch: format(epoch.metrics[name], form) if name in epoch.metrics else ""


_COLUMNS: Mapping[str, Callable[[EpochRecord], str]] = {
    "groups": lambda epoch: f"{epoch.trained_groups}/{epoch.num_groups}",
    "rollouts": lambda epoch: f"{epoch.num_rollouts:,}" if epoch.played else "",
    "left out": lambda epoch: f"{sum(epoch.left_out.values()):,}" if epoch.played else "",
    "KL": _metric("train/approx_kl", ".3g"),
    "grad norm": _metric("train/grad_norm", ".3g"),
    "entropy": _metric("train/entropy", ".3f"),
    "stale rows": _metric(STALE_ROWS, ".0%"),
    "seconds": lambda epoch: f"{epoch.seconds:.1f}",
    "phase": lambda epoch: epoch.phase or "",
}


@dataclass(frozen=True)
class EpochTable:
    """A row for each epoch, which begins with its number, from 1; the first row may be that before training."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def epoch_table(epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord]) -> EpochTable:
    """A held-out score stands at the epoch before it; columns that no epoch fills are left out."""
    means, numbers = held_out_means(validations), [epoch_number(epoch.epoch) for epoch in epochs]
    held_out = {each.epoch: f"{means[each.epoch]:.3f}" if each.epoch in means else "no score" for each in validations}
    columns = {
        "epoch": ["before", *map(str, numbers)],
        "reward": ["", *(epoch.result for epoch in epochs)],
        "held-out": [held_out.get(number, "") for number in (0, *numbers)],
        **{name: ["", *map(column, epochs)] for name, column in _COLUMNS.items()},
    }
    filled = {name: column for name, column in columns.items() if any(column)}
    return EpochTable([*filled], [*zip(*filled.values(), strict=True)][0 not in held_out :])
