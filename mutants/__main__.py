"""`python -m mutants [TARGET …]`: change the code in one place at a time, and list the changes that no test notices.

All of them take hours. `--part 2/8` makes every eighth change, from the second one on, so that eight parts make all;
`--minutes 30` stops after that time, and says what is left.

Each changed module runs in a child process with its own tests, until the first of them fails. A change survives if
all tests pass. It is printed with its line number, the line before and the line after:

    - a gap: no test checks the line; write the test, or delete unneeded code;
    - marked `=`, if equivalent.py gives the reason why no test can notice it.

The exit code is 1 if there is a gap.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Self

from hypothesis import Phase, settings

from mutants.equivalent import EQUIVALENT
from mutants.mutate import Mutant, mutants
from mutants.trial import passes

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "nat"
TESTS = ROOT / "tests" / "unit"
LIMIT_S = 300
"""Seconds for the unchanged tests of a target; a changed run gets ten times their time, at least ten seconds."""
MINUTES = 120.0
HEAVY = ("pydantic", "httpx", "openai")
"""Imported once before the children start; modules of `nat` are not imported."""


@dataclass(frozen=True)
class Target:
    """Modules, and the tests that should fail if one of them changes."""

    modules: Sequence[str]
    tests: Sequence[str]
    imports: Sequence[str] = HEAVY


TARGETS = {
    "rows": Target(["wire/rows.py"], ["wire/test_rows.py"]),
    "pairs": Target(
        ["preferences/pairs.py", "preferences/parting.py"],
        ["preferences/test_pairs.py", "preferences/test_parting.py", "preferences/test_pairs_agreement.py"],
    ),
    "curriculum": Target(["finetuning/curriculum.py"], ["finetuning/test_curriculum.py"]),
    "verdict": Target(["finetuning/verdict.py"], ["finetuning/test_verdict.py"]),
    "advantages": Target(
        [f"backend/algorithms/{name}.py" for name in ("advantages", "grpo", "dr_grpo", "rloo", "reinforce_pp")],
        [
            "backend/algorithms/test_advantages.py",
            "backend/algorithms/test_registry.py",
            "backend/training/test_loss.py",
        ],
        [*HEAVY, "torch", "transformers"],
    ),
    "losses": Target(
        [
            "backend/training/loss.py",
            "backend/algorithms/gspo.py",
            "backend/algorithms/cispo.py",
            "art/server/algorithm.py",
        ],
        ["backend/training/test_loss.py", "backend/algorithms/test_registry.py", "art/server/test_algorithm.py"],
        [*HEAVY, "torch", "transformers"],
    ),
    "capture": Target(
        ["capture/request.py", "capture/response.py", "capture/policy.py", "capture/steps.py"],
        [f"capture/test_{name}.py" for name in ("request", "response", "policy", "steps", "tap")],
    ),
}


@dataclass(frozen=True)
class Part:
    """Every `of`-th change, beginning with the `number`-th."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `2/8`; ValueError if it is no part of a whole."""
        number, of = map(int, text.split("/"))
        if not 1 <= number <= of:
            raise ValueError(text)
        return cls(number, of)

    def chosen(self, changes: Iterable[Mutant]) -> list[Mutant]:
        return list(islice(changes, self.number - 1, None, self.of))


def gaps(module: str, tests: Sequence[str], part: Part, until: float) -> int:
    """Print the surviving changes of a module; gives the number of gaps."""
    path, name = SOURCE / module, "nat." + module.removesuffix(".py").replace("/", ".")
    if time.monotonic() > until:
        print(f"{module}: not begun for lack of time", flush=True)
        return 0
    source, began = path.read_text("utf-8"), time.monotonic()
    if not passes(name, path, source, tests, limit_s=LIMIT_S):
        raise SystemExit(f"{module}: its tests fail without any change; run: pytest {' '.join(tests)}")
    limit_s = int(10 + 10 * (time.monotonic() - began))
    if passes(name, path, "raise ImportError", tests, limit_s=limit_s):
        raise SystemExit(f"{module}: none of its tests imports it: {' '.join(tests)}")
    made = survivors = missed = 0
    known, chosen = EQUIVALENT.get(module, {}), part.chosen(mutants(source))
    for mutant in chosen:
        if time.monotonic() > until:
            break
        made += 1
        if passes(name, path, mutant.source, tests, limit_s=limit_s):
            survivors += 1
            missed += mutant.after not in known
            mark = "=" if mutant.after in known else "-"
            print(f"  {mark} line {mutant.line}\n      was {mutant.before}\n      now {mutant.after}", flush=True)
    left = f", {len(chosen) - made} not made for lack of time" if made < len(chosen) else ""
    print(f"{module}: {made} changes, {survivors} survive, {survivors - missed} of them equivalent{left}", flush=True)
    return missed


def main(arguments: Sequence[str]) -> int:
    """Give 1 if the named targets have gaps, else 0."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description="List the changes that no test notices.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all of them")
    parser.add_argument("--part", type=Part.parse, default=Part(1, 1), help="such as 2/8")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"default: {MINUTES:g}")
    given = parser.parse_args(arguments)
    if unknown := set(given.targets) - TARGETS.keys():
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a child never outlives this process
    os.chdir(ROOT)
    os.environ["OMP_NUM_THREADS"] = "1"
    settings.register_profile(
        "mutants", derandomize=True, database=None, deadline=None, phases=(Phase.explicit, Phase.generate)
    )
    settings.load_profile("mutants")  # the same examples each time, and no search for a small one
    until, missed = time.monotonic() + 60 * given.minutes, 0
    for target in (TARGETS[name] for name in given.targets or TARGETS):
        for heavy in target.imports:
            import_module(heavy)
        tests = [str(TESTS / test) for test in target.tests]
        missed += sum(gaps(module, tests, given.part, until) for module in target.modules)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
