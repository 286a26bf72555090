"""Many runs of the projects, each killed elsewhere, and a table of what came of them."""

import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from killed.faults import REFUSALS, is_refused
from killed.playing import Kill, Played, compare, play, points
from killed.processes import BACKEND, HARNESS
from killed.projects import PROJECTS, make_project

VICTIMS = ((HARNESS,), (BACKEND,), (HARNESS, BACKEND))
PLACES = {"/checkpoints/": "checkpoints and jobs", "/exports/": "export of the model", "sqlite": "journal"}
OTHERS = "derived files"


@dataclass(frozen=True)
class Undisturbed:
    """A run without a kill, and where it could have been killed."""

    project: str
    played: Played
    seconds: float
    points: dict[str, list[str]]

    @classmethod
    def of(cls, project: str, folder: Path) -> "Undisturbed":
        make_project(folder, PROJECTS[project])
        begun = time.monotonic()
        played = play(folder)
        seconds = time.monotonic() - begun
        assert not played.failures, played.failures
        return cls(project, played, seconds, {name: points(folder, name) for name in (HARNESS, BACKEND)})


@dataclass(frozen=True)
class Case:
    """A run to be killed."""

    project: str
    where: str
    """A row of the table."""
    kills: Sequence[Kill]


@dataclass
class Row:
    """What came of the cases of one place."""

    cases: int = 0
    kills: int = 0
    wrong: list[str] = field(default_factory=list)


def at_each_point(run: Undisturbed) -> Iterator[Case]:
    """Before and after each operation, and with a file that is cut short."""
    for name, lines in run.points.items():
        for number, line in enumerate(lines, 1):
            for when in ("before", "after", *(("torn",) if " torn " in line else ())):
                yield Case(run.project, f"{name.lower()}, {_place(line)}", [Kill({name: f"{when}:{number}"})])


def at_refusals(run: Undisturbed) -> Iterator[Case]:
    """A disk that is full, or read-only, from each operation on."""
    for name, lines in run.points.items():
        for number, line in enumerate(lines, 1):
            for kind in (each for each in REFUSALS if is_refused(each, line.split(" ", 1)[1].removeprefix("torn "))):
                yield Case(run.project, f"{name.lower()}, a {kind} disk", [Kill({name: f"{kind}:{number}"})])


def at_two_points(run: Undisturbed, count: int, dice: random.Random) -> Iterator[Case]:
    """At random operations, of the process and of the one that goes on."""
    for _ in range(count):
        names = dice.choices((HARNESS, BACKEND), k=2)
        kills = [Kill({name: f"{dice.choice(('before', 'after'))}:{_number(run, name, dice)}"}) for name in names]
        yield Case(run.project, "two operations in a row", kills)


def at_instants(run: Undisturbed, count: int, dice: random.Random) -> Iterator[Case]:
    """At random instants, from outside; each third run twice."""
    for number in range(count):
        victims = [dice.choice(VICTIMS) for _ in range(1 + (number % 3 == 0))]
        where = " and ".join(map(str.lower, victims[0])) if len(victims) == 1 else "twice in a row"
        kills = [Kill(seconds=dice.uniform(0, run.seconds), victims=each) for each in victims]
        yield Case(run.project, f"an instant: {where}", kills)


def wrong_with(case: Case, undisturbed: Undisturbed, folder: Path) -> tuple[Played, list[str]]:
    """Play a case in a new folder; gives what is wrong with it."""
    make_project(folder, PROJECTS[case.project])
    played = play(folder, case.kills)
    return played, compare(undisturbed.played, played, deterministic=PROJECTS[case.project].deterministic)


Rows = dict[tuple[str, str], Row]
"""By project and place."""


def campaign(cases: Sequence[Case], undisturbed: Mapping[str, Undisturbed], folder: Path, *, at_once: int) -> Rows:
    """Play all cases; gives the rows of the table. The folders of runs that are wrong stay."""
    rows: Rows = {}

    def one(numbered: tuple[int, Case]) -> tuple[int, Case, Played, list[str]]:
        number, case = numbered
        own = folder / f"case_{number}"
        played, wrong = wrong_with(case, undisturbed[case.project], own)
        if not wrong:
            shutil.rmtree(own)
        return number, case, played, wrong

    with ThreadPoolExecutor(at_once) as threads:
        for number, case, played, wrong in threads.map(one, enumerate(cases)):
            row = rows.setdefault((case.project, case.where), Row())
            row.cases, row.kills = row.cases + 1, row.kills + len(played.kills)
            told = f"case {number}, {case.project}: {played.kills or case.kills}"
            print("wrong" if wrong else "right", told, *wrong, sep="\n  ", flush=True)
            if wrong:
                row.wrong.append(told)
    return rows


def table(rows: Rows) -> str:
    """The rows in Markdown."""
    lines = ["| run | killed | runs | kills | wrong |", "|---|---|--:|--:|--:|"]
    for (project, where), row in sorted(rows.items()):
        lines.append(f"| {project} | {where} | {row.cases} | {row.kills} | {len(row.wrong)} |")
    played, kills = sum(row.cases for row in rows.values()), sum(row.kills for row in rows.values())
    lines.append(f"| all | | {played} | {kills} | {sum(len(row.wrong) for row in rows.values())} |")
    return "\n".join(lines) + "\n"


def _place(line: str) -> str:
    return next((name for part, name in PLACES.items() if part in line), OTHERS)


def _number(run: Undisturbed, name: str, dice: random.Random) -> int:
    return dice.randrange(1, len(run.points[name]) + 1)
