"""Plain virtual environments, as users make them with `python -m venv` and pip; independent of `.venv`.

pip chooses the newest release of everything that `pyproject.toml` allows. On Linux its torch is the CUDA build of
several gigabytes, unless `cpu_torch()` names another; `lowest()` names the oldest release of everything instead.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from conformance.environments import PROJECT, REPOSITORY, outside
from packaging.requirements import Requirement

HOME = REPOSITORY / ".tmp" / "installs"
INSTALL_DEADLINE_S = 1200


@dataclass(frozen=True)
class Environment:
    """A virtual environment in its own folder; the caller removes it."""

    folder: Path

    def pip(self, *arguments: str | Path) -> None:
        """Run `pip ARGUMENTS` in the environment; raises CalledProcessError."""
        quiet = ("--disable-pip-version-check", "-qq")
        command = [self.folder / "bin" / "python", "-m", "pip", *quiet, *arguments]
        subprocess.run(command, cwd=REPOSITORY, env=outside(), check=True, timeout=INSTALL_DEADLINE_S)

    def nat(
        self, *arguments: str | Path, deadline_s: float = 300, cwd: Path = REPOSITORY
    ) -> subprocess.CompletedProcess[str]:
        """Run `nat ARGUMENTS`, by default in the repository's root; gives its output."""
        return self._run("nat", *arguments, deadline_s=deadline_s, cwd=cwd)

    def python(self, *arguments: str | Path, deadline_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Run `python ARGUMENTS`; gives its output."""
        return self._run("python", *arguments, deadline_s=deadline_s, cwd=REPOSITORY)

    def _run(
        self, program: str, *arguments: str | Path, deadline_s: float, cwd: Path
    ) -> subprocess.CompletedProcess[str]:
        command = [self.folder / "bin" / program, *arguments]
        return subprocess.run(
            command, cwd=cwd, env=outside(), capture_output=True, text=True, check=False, timeout=deadline_s
        )


def made(name: str, python: Path) -> Environment:
    """Make an empty environment with this interpreter."""
    folder = HOME / name
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", folder], env=outside(), check=True, timeout=INSTALL_DEADLINE_S)
    return Environment(folder)


def cpu_torch() -> list[str]:
    """The pip arguments that choose the release of torch in `constraints.txt`."""
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    return [next(line for line in lines if line.startswith("torch=="))]


def lowest(*extras: str) -> list[str]:
    """Each requirement of the package and of its `extras`, at the oldest version that `pyproject.toml` allows."""
    wanted = [*PROJECT["dependencies"], *(each for extra in extras for each in PROJECT["optional-dependencies"][extra])]
    return sorted({_oldest(Requirement(text)) for text in wanted})


def _oldest(requirement: Requirement) -> str:
    (bound,) = [each.version for each in requirement.specifier if each.operator == ">="]
    return f"{requirement.name}=={bound}"
