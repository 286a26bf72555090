"""Rollouts that it takes to reach the same held-out reward, with examples in turn and with examples chosen by spread.

The target of a task is 90 % of the gain that plain sampling has at its end, the mean over the seeds. Validations are
smoothed with their neighbours, and the rollouts between two of them interpolated. A run that never gets there counts
with all of its rollouts, so the printed factor is then a lower or an upper bound, which the row says.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench.defaults import Case, make_task, trained

from nat.runs.journal import reading

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "in turn": {},
    "by spread": {"choose_examples": "by_spread"},
    "by spread, refilled": {"choose_examples": "by_spread", "max_refills": 1},
}
SHARE_OF_GAIN = 0.9

Curve = list[tuple[float, float]]
"""Rollouts of training so far, and the held-out reward."""


def main() -> None:
    """Print a line for each run, and for each task the factor of each setting."""
    parser = argparse.ArgumentParser(prog="python -m bench.choosing", description=__doc__)
    parser.add_argument("--tasks", nargs="*", default=["dial", "order", "tic_tac_toe"])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--rollouts", type=int, default=3072)
    parser.add_argument("--hopeless", type=int, default=0, help="Rows without a right answer, for each row with one.")
    parser.add_argument("--folder", type=Path, help="Where tasks and models are kept.")
    parser.add_argument("--at_once", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(options.at_once) as pool:
        folder = options.folder or Path(temporary)
        for task in options.tasks:
            make_task(task, folder)
            if options.hopeless:
                add_hopeless(folder / task / "train.jsonl", options.hopeless)
            cases = [
                Case(task, lora=False, seed=seed, name=name, settings=SETTINGS[name])
                for seed in options.seeds
                for name in options.settings
            ]
            curves = list(pool.map(lambda case: curve(case, folder, options.rollouts), cases))
            found = dict(zip(((case.name, case.seed) for case in cases), curves, strict=True))
            _print(task, found, options.settings, options.seeds)


def add_hopeless(data: Path, number: int) -> None:
    """Add rows whose answer no model can give, `number` for each row."""
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    rows += [{**row, "id": f"{row['id']}/{n}", "answer": "none"} for row in rows for n in range(number)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))


def curve(case: Case, folder: Path, rollouts: int) -> Curve:
    """Train once and validate every second epoch."""
    with tempfile.TemporaryDirectory() as output:
        run = trained(
            replace(case, settings={**case.settings, "validation_interval": 2}), folder, Path(output), rollouts
        )
        if run is None:
            return []
        with reading(run) as journal:
            played = [0, *accumulate(epoch.num_rollouts for epoch in journal.each_epoch())]
            return [(played[each.epoch], fmean(each.rewards)) for each in journal.validations()]


def smooth(found: Curve) -> Curve:
    """Each held-out reward as the mean of itself and its neighbours."""
    rewards = [reward for _, reward in found]
    return [(at, fmean(rewards[max(0, i - 1) : i + 2])) for i, (at, _) in enumerate(found)]


def rollouts_to(found: Curve, target: float) -> float | None:
    """When the curve first reaches the target, interpolated; None if it does not."""
    if found and found[0][1] >= target:
        return found[0][0]
    for (at, reward), (then, higher) in pairwise(found):
        if higher >= target:
            return at + (then - at) * (target - reward) / (higher - reward)
    return None


def _print(task: str, found: dict[tuple[str, int], Curve], names: Sequence[str], seeds: Sequence[int]) -> None:
    plain = [smooth(found[names[0], seed]) for seed in seeds if found[names[0], seed]]
    before, after = fmean(each[0][1] for each in plain), fmean(each[-1][1] for each in plain)
    target = before + SHARE_OF_GAIN * (after - before)
    print(f"\n{task}: from {before:.3f} to {target:.3f}; plain sampling ends at {after:.3f}\n")
    print("| task | setting | rollouts, by seed | mean | median | at the end | fewer |")
    print("|---|---|---:|---:|---:|---:|---:|")
    means: dict[str, float] = {}
    for name in names:
        curves = [smooth(found[name, seed]) for seed in seeds if found[name, seed]]
        reached = [rollouts_to(each, target) for each in curves]
        counted = [each[-1][0] if at is None else at for each, at in zip(curves, reached, strict=True)]
        means[name] = fmean(counted)
        shown = ", ".join(
            f">{all_of:.0f}" if at is None else f"{at:.0f}" for at, all_of in zip(reached, counted, strict=True)
        )
        end = fmean(each[-1][1] for each in curves)
        factor = means[names[0]] / max(1.0, means[name])
        row = f"| {task} | {name} | {shown} | {means[name]:.0f} | {median(counted):.0f} | {end:.3f} | {factor:.2f} x |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
