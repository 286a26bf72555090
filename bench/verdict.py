"""Simulate how often the verdict is wrong, with its confidence interval and five others.

    python -m bench verdict

Prints the tables of docs/evidence/verdict.md. A cell has one number for each count of held-out examples.

Shapes: R simulated runs, N examples, B resamples.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from nat.finetuning.verdict import MIN_DIFFERING, compare

COUNTS = (6, 10, 30, 100, 300)
RUNS, RESAMPLES = 1000, 1000
TAIL = 0.025
RARE = 0.1
ROUNDING = 1e-9
FAR = 1e3
T_QUANTILE = {6: 2.5706, 10: 2.2622, 30: 2.0452, 100: 1.9842, 300: 1.9679}
"""Student's t at 97.5 % by number of examples, with one degree of freedom less."""

Array = NDArray[np.float64]
Mask = NDArray[np.bool]
Random = np.random.Generator
Draw = Callable[[Random, tuple[int, int]], Array]
Ends = tuple[float, float]


@dataclass(frozen=True)
class Case:
    """Scores before, and by how much they change on average."""

    title: str
    mean: float
    draw: Draw
    """The changes."""
    wins: bool = False
    """Scores are 0 and 1, not continuous."""

    def scores(self, rng: Random, shape: tuple[int, int]) -> tuple[Array, Array]:
        """Before and after, each (R, N)."""
        changes_RN = self.draw(rng, shape)
        before_RN = rng.normal(size=shape)
        if self.wins:
            before_RN = np.where(changes_RN == 0, before_RN > 0, changes_RN < 0).astype(float)
        return before_RN, before_RN + changes_RN


def wins(rise: float, fall: float) -> Draw:
    """Each example is one game."""

    def draw(rng: Random, shape: tuple[int, int]) -> Array:
        chance_RN = rng.random(shape)
        return (chance_RN < rise).astype(float) - (chance_RN > 1 - fall)

    return draw


def rare(change: Draw) -> Draw:
    """One example in ten changes."""
    return lambda rng, shape: change(rng, shape) * (rng.random(shape) < RARE)


def normal(mean: float) -> Draw:
    """Spread 1."""
    return lambda rng, shape: rng.normal(mean, size=shape)


UNCHANGED = (
    Case("wins, half differ", 0, wins(0.25, 0.25), wins=True),
    Case("wins, a tenth differs", 0, wins(0.05, 0.05), wins=True),
    Case("continuous: normal", 0, normal(0)),
    Case("heavy-tailed: t with 2 degrees of freedom", 0, lambda rng, shape: rng.standard_t(2, size=shape)),
    Case("mostly zero: nine tenths, else normal", 0, rare(normal(0))),
    Case("skewed: exponential", 0, lambda rng, shape: rng.exponential(size=shape) - 1),
    Case("very skewed: lognormal", 0, lambda rng, shape: rng.lognormal(size=shape) - np.exp(0.5)),
)
CHANGED = (
    Case("wins: half rise, 5 % fall", 0.45, wins(0.5, 0.05), wins=True),
    Case("wins: nine tenths rise", 0.9, wins(0.9, 0), wins=True),
    Case("wins: 3 % rise", 0.03, wins(0.03, 0), wins=True),
    Case("continuous: normal, +0.5", 0.5, normal(0.5)),
    Case("heavy-tailed: t with 3 degrees of freedom, +1", 1, lambda rng, shape: rng.standard_t(3, size=shape) + 1),
    Case("mostly zero: a tenth rises by 0 to 1", 0.05, rare(lambda rng, shape: rng.random(shape))),
)


def ours(before_N: Array, after_N: Array) -> Ends:
    """The interval that `nat finetune` reports."""
    return compare(dict(enumerate(before_N.tolist())), dict(enumerate(after_N.tolist()))).interval  # type: ignore[arg-type]  # any key will do


def student(changes_N: Array) -> Ends:
    """The plain t-interval."""
    half = T_QUANTILE[len(changes_N)] * changes_N.std(ddof=1) / sqrt(len(changes_N))
    return changes_N.mean() - half, changes_N.mean() + half


def bootstraps(changes_N: Array, rng: Random) -> dict[str, Ends]:
    """Percentiles of resampled means, the same corrected for bias and skew, and of resampled t."""
    count, mean = len(changes_N), changes_N.mean()
    drawn_BN = changes_N[rng.integers(0, count, size=(RESAMPLES, count))]
    means_B = drawn_BN.mean(axis=1)
    spreads_B = drawn_BN.std(axis=1, ddof=1) / sqrt(count)
    with np.errstate(divide="ignore", invalid="ignore"):
        t_B = np.nan_to_num((means_B - mean) / spreads_B, posinf=FAR, neginf=-FAR)
    t_low, t_high = np.quantile(t_B, [TAIL, 1 - TAIL])
    error = changes_N.std(ddof=1) / sqrt(count)
    return {
        "percentile bootstrap": tuple(np.quantile(means_B, [TAIL, 1 - TAIL])),
        "BCa bootstrap": tuple(np.quantile(means_B, bca_levels(changes_N, means_B))),
        "bootstrap-t": (mean - t_high * error, mean - t_low * error),
    }


def bca_levels(changes_N: Array, means_B: Array) -> list[float]:
    """Efron's bias-corrected and accelerated percentiles."""
    unit = NormalDist()
    below = ((means_B < changes_N.mean()).mean() + (means_B <= changes_N.mean()).mean()) / 2
    bias = unit.inv_cdf(min(max(below, 1e-3), 1 - 1e-3))
    centred_N = changes_N - changes_N.mean()
    square = (centred_N**2).sum()
    skew = 0.0 if square == 0 else (centred_N**3).sum() / (6 * square**1.5)
    return [unit.cdf(bias + (bias + z) / (1 - skew * (bias + z))) for z in map(unit.inv_cdf, (TAIL, 1 - TAIL))]


def sign_flips(changes_N: Array, rng: Random) -> Ends:
    """Hartigan's typical values: percentiles of the means of random subsets."""
    taken_BN = rng.integers(0, 2, size=(RESAMPLES, len(changes_N)))
    taken_BN = taken_BN[taken_BN.any(axis=1)]
    low, high = np.quantile(taken_BN @ changes_N / taken_BN.sum(axis=1), [TAIL, 1 - TAIL])
    return low, high


def intervals(case: Case, count: int, rng: Random) -> dict[str, Array]:
    """Each method's intervals for the same runs, (R, 2)."""
    found: dict[str, list[Ends]] = {}
    for before_N, after_N in zip(*case.scores(rng, (RUNS, count)), strict=True):
        changes_N = (after_N - before_N).round(12)
        others = {"t": student(changes_N), **bootstraps(changes_N, rng), "sign flips": sign_flips(changes_N, rng)}
        if np.count_nonzero(changes_N) < MIN_DIFFERING:  # the same rule for all, so that intervals are compared
            others = {name: (min(low, 0.0), max(high, 0.0)) for name, (low, high) in others.items()}
        for name, ends in {"ours": ours(before_N, after_N), **others}.items():
            found.setdefault(name, []).append(ends)
    return {name: np.array(ends) for name, ends in found.items()}


def outside(ends_R2: Array, mean: float) -> Mask:
    """True for each run whose interval excludes the mean."""
    return (ends_R2[:, 0] > mean + ROUNDING) | (ends_R2[:, 1] < mean - ROUNDING)


def table(title: str, of_rows: str, cells: dict[str, list[dict[str, float]]]) -> None:
    """One row per case, one column per method, one percentage per count."""
    methods = list(next(iter(cells.values()))[0])
    print(f"\n{title}, for {', '.join(map(str, COUNTS))} examples:\n")
    print(f"| {of_rows} | {' | '.join(methods)} |\n|---|{'---:|' * len(methods)}")
    for case, by_count in cells.items():
        row = [" ".join(f"{100 * shares[method]:.0f}" for shares in by_count) for method in methods]
        print(f"| {case} | {' | '.join(row)} |")


def main() -> None:
    """Print three tables: false verdicts, missed changes, and changes that were found."""
    rng = np.random.default_rng(0)
    found = {case: [intervals(case, count, rng) for count in COUNTS] for case in (*UNCHANGED, *CHANGED)}

    def shares(cases: tuple[Case, ...], judge: Callable[[Array, Case], Mask]) -> dict[str, list[dict[str, float]]]:
        return {
            case.title: [{m: float(judge(e, case).mean()) for m, e in each.items()} for each in found[case]]
            for case in cases
        }

    false = shares(UNCHANGED, lambda ends, _: outside(ends, 0))
    missed = shares(CHANGED, lambda ends, case: outside(ends, case.mean))
    table("False verdicts, in %, where the mean does not change", "differences without a change", false)
    table("The true change is outside of the interval, in %", "changes that may be missed", missed)
    table("The verdict is `improved`, in %", "changes to find", shares(CHANGED, lambda ends, _: ends[:, 0] > 0))


if __name__ == "__main__":
    main()
