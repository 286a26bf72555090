"""Make the virtual environments in which other people's packages live, each from its own requirement file.

An environment is made again only when its requirement file changes. Run this file to make them all:
`python interop/environments.py`.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
REQUIREMENTS = REPOSITORY / "interop" / "requirements"
ENVIRONMENTS = REPOSITORY / ".tmp" / "interop"
INSTALL_DEADLINE_S = 900


def names() -> list[str]:
    """Every environment that has a requirement file."""
    return sorted(file.stem for file in REQUIREMENTS.glob("*.txt"))


def python_of(name: str, *, requirements: Path = REQUIREMENTS, home: Path = ENVIRONMENTS) -> Path:
    """The interpreter of the environment `name` below `home`, made first where it is missing or out of date.

    Paths in requirement files are read from the repository's root.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / f"{name}.lock").open("w") as lock:
        # Whoever comes while it is made waits for it, be it another thread or another run.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _made(name, requirements / f"{name}.txt", home / name)


def _made(name: str, file: Path, folder: Path) -> Path:
    python, done = folder / "bin" / "python", folder / "requirements.txt"
    if done.is_file() and done.read_text() == file.read_text():
        return python
    began = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    # Twice quiet: errors only.
    _run([str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--requirement", str(file)])
    shutil.copy(file, done)
    print(f"made the environment {name} in {time.monotonic() - began:.0f} s", flush=True)
    return python


def outside() -> dict[str, str]:
    """The environment variables that a process of another virtual environment may inherit."""
    ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in ours}


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, env=outside(), cwd=REPOSITORY, timeout=INSTALL_DEADLINE_S)


if __name__ == "__main__":
    for each in names():
        python_of(each)
