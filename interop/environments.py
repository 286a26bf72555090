"""Make the virtual environments in which other people's packages live, each as it was tested.

`requirements/NAME.txt` says what is wanted, and `requirements/NAME.lock` which version of everything was there when all
tests passed with it. An environment is made again only when one of the two changes.

`python interop/environments.py [NAME …]` makes those that are named, or all but those in `optional/`, which are large.
With `--renew` it takes the newest releases that the requirement file allows instead, and writes the lock: test with
them, then commit it.
"""

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
AT_ONCE = 2
"""An install waits for the network while another one unpacks."""
INSTALL_DEADLINE_S = 900


@dataclass(frozen=True)
class Environments:
    """A folder of requirement files and locks, and the folder in which their environments lie."""

    requirements: Path
    home: Path

    def names(self) -> list[str]:
        """Every environment that has a requirement file."""
        return sorted(file.stem for file in self.requirements.glob("*.txt"))

    def lock_of(self, name: str) -> Path:
        """The file of the versions that the environment was tested with."""
        return self.requirements / f"{name}.lock"

    def python_of(self, name: str) -> Path:
        """The interpreter of the environment, made first where it is missing or out of date.

        Paths in requirement files are read from the repository's root.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        folder, wanted = self.home / name, self._wanted(name)
        python, done = folder / "bin" / "python", folder / "wanted.txt"
        with (self.home / f"{name}.busy").open("w") as busy:
            # Whoever comes while it is made waits for it, be it another thread or another run.
            fcntl.flock(busy, fcntl.LOCK_EX)
            if not (done.is_file() and done.read_text() == wanted):
                began = time.monotonic()
                self._install(name, python, ["--constraint", str(self.lock_of(name))])
                done.write_text(wanted)
                print(f"made the environment {self.home.name}/{name} in {time.monotonic() - began:.0f} s", flush=True)
        return python

    def renew(self, name: str) -> Path:
        """Make the environment of the newest releases that are allowed, and lock what it holds then."""
        python = self.home / name / "bin" / "python"
        self._install(name, python, [])
        head = f"# Made by `environments.py --renew {name}`: what was installed when all tests passed.\n"
        held = pip(python, "freeze", "--all", "--exclude-editable")
        # The build of torch (`+cpu`) is the machine's choice.
        self.lock_of(name).write_text(head + re.sub(r"\+\w+$", "", held, flags=re.MULTILINE))
        return python

    def _wanted(self, name: str) -> str:
        return (self.requirements / f"{name}.txt").read_text() + self.lock_of(name).read_text()

    def _install(self, name: str, python: Path, options: list[str]) -> None:
        shutil.rmtree(python.parents[1], ignore_errors=True)
        _run([sys.executable, "-m", "venv", "--without-pip", str(python.parents[1])])
        # Twice quiet: errors only. What is never imported need not be compiled.
        quick = ["-qq", "--no-compile", "--build-constraint", "constraints.txt"]
        pip(python, "install", *quick, *options, "--requirement", str(self.requirements / f"{name}.txt"))


INTEROP = Environments(REPOSITORY / "interop" / "requirements", REPOSITORY / ".tmp" / "interop")
OPTIONAL = Environments(REPOSITORY / "interop" / "optional", INTEROP.home)
python_of = INTEROP.python_of


def outside() -> dict[str, str]:
    """The environment variables that a process of another virtual environment may inherit."""
    ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in ours}


def make(environments: Environments, optional: Environments | None = None) -> None:
    """What the command line asks for, some at once; of the optional ones those that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help="all if none is named")
    parser.add_argument("--renew", action="store_true", help="take the newest releases and write the lock")
    asked = parser.parse_args()

    def made(name: str) -> Path:
        home = environments if optional is None or name not in optional.names() else optional
        return home.renew(name) if asked.renew else home.python_of(name)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(made, asked.names or environments.names()))


def pip(python: Path, *command: str) -> str:
    """What our own pip, which is newer than the one that a new environment would get, says of another environment."""
    return _run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), *command])


def _run(command: list[str]) -> str:
    ended = subprocess.run(
        command,
        check=True,
        cwd=REPOSITORY,
        env=outside(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=INSTALL_DEADLINE_S,
    )
    return ended.stdout


if __name__ == "__main__":
    make(INTEROP, OPTIONAL)
