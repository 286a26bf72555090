"""`python -m conformance.torture [--seed N] [--skip N] [--sample N]`: kill runs everywhere, go on, and compare.

The table is `.tmp/torture/table.md`; the folders of runs that came to something else stay beside it.
"""

import argparse
import os
import random
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from fakes.forked_processes import zygote  # noqa: E402 - of the tests' folder
from killed.campaign import (  # noqa: E402
    Undisturbed,
    at_each_point,
    at_instants,
    at_refusals,
    at_two_points,
    campaign,
    table,
)
from killed.projects import PROJECTS  # noqa: E402

INSTANTS = {"plain": 200} | dict.fromkeys(("phases", "programs", "pairs", "labels", "teacher", "team"), 20)
TWICE = 40
FOLDER = Path(".tmp") / "torture"


def main() -> int:
    """Return 1 if a run came to something else."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, help="Play only so many runs, drawn by the seed.")
    parser.add_argument("--skip", type=int, default=0, help="Leave out the first so many.")
    parser.add_argument("--projects", nargs="*", default=list(PROJECTS), choices=list(PROJECTS))
    given = parser.parse_args()
    folder, dice = FOLDER.resolve(), random.Random(given.seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with zygote(folder) as variables:
        os.environ.update(variables)
        undisturbed = {name: Undisturbed.of(name, folder / name) for name in given.projects}
        cases = [case for name, run in undisturbed.items() for case in at_instants(run, INSTANTS[name], dice)]
        for name in filter(undisturbed.__contains__, ("plain", "phases")):
            run = undisturbed[name]
            cases += [*at_each_point(run), *at_refusals(run), *at_two_points(run, TWICE, dice)]
        dice.shuffle(cases)
        cases = cases[given.skip :][: given.sample]
        rows = campaign(cases, undisturbed, folder, at_once=os.cpu_count() or 1)
    (folder / "table.md").write_text(table(rows))
    print(table(rows))
    return int(any(row.wrong for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
