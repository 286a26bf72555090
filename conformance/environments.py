"""Make the virtual environments of other projects' releases from locked requirements.

`python -m conformance.environments [NAME …]`; see the package's docstring. An environment is made again only when its
requirement file or its lock changes. The variable CONFORMANCE_PYTHON chooses another Python for them, such as 3.12.
"""

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[1]
REQUIREMENTS = Path(__file__).parent / "requirements"
HOME = REPOSITORY / ".tmp" / "environments"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
_OURS = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = os.environ.get("CONFORMANCE_PYTHON") or _OURS
"""The minor version of the environments' Python."""
AT_ONCE = 4
"""Number of concurrent installs, which wait for the network most of the time."""
INSTALL_DEADLINE_S = 900
BASE = "openai"
"""Has what training needs, and little else; other environments link its files, of which torch has ten thousand."""


def names(folder: str = "*") -> list[str]:
    """The environments of a folder of `requirements/`, or all of them, for any Python."""
    return sorted(file.stem for suffix in ("txt", "npm") for file in REQUIREMENTS.glob(f"{folder}/*.{suffix}"))


def is_for_this_python(name: str) -> bool:
    """False if a requirement of the environment is for other Pythons; its marker then says for which."""
    file = file_of(name)
    wanted = {} if file.suffix == ".npm" else requirements_in(file)
    return all(each.marker is None or each.marker.evaluate({"python_version": PYTHON}) for each in wanted.values())


@cache
def interpreter(version: str) -> Path | None:
    """Find a Python of this minor version on PATH or in pyenv; None if none starts."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)]
    return next((Path(path) for path in found if path is not None and _starts(path, version)), None)


def _starts(python: str | Path, version: str) -> bool:
    done = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.startswith(f"Python {version}.")


def without_python() -> str | None:
    """What to print if the chosen Python is missing here; then there is nothing to test."""
    if PYTHON == _OURS or interpreter(PYTHON) is not None:
        return None
    return f"LEFT OUT: no Python {PYTHON} on PATH or in pyenv, so nothing is tested under it"


def file_of(name: str) -> Path:
    """The requirement file of an environment."""
    (file,) = (file for suffix in ("txt", "npm") for file in REQUIREMENTS.glob(f"*/{name}.{suffix}"))
    return file


def python_of(name: str) -> Path:
    """The interpreter of a Python environment, which is made first if it is missing or out of date."""
    return _made(name) / "bin" / "python"


def program_of(name: str) -> Path:
    """The program of an npm release, which is installed first if it is missing or has another version."""
    return _made(name) / "node_modules" / ".bin" / name


def renew(name: str) -> None:
    """Make the environment with the newest allowed releases, and lock their versions."""
    file = file_of(name)
    if file.suffix == ".npm":
        package = file.read_text().strip().rpartition("@")[0]
        file.write_text(f"{package}@{_run(['npm', 'view', package, 'version']).strip()}\n")
        _made(name)
        return
    python = _install_python_packages(_folder(name), file, [])
    head = f"# Made by `python -m conformance.environments --renew {name}`: what was installed when all tests passed.\n"
    held = pip(python, "freeze", "--all", "--exclude-editable")
    # The build of torch (`+cpu`) is the machine's choice.
    file.with_suffix(".lock").write_text(head + re.sub(r"\+\w+$", "", held, flags=re.MULTILINE))


def check(name: str) -> list[str]:
    """List the requirements of an environment that its lock does not pin to a fitting version."""
    file = file_of(name)
    if file.suffix == ".npm":
        package, _, version = file.read_text().strip().rpartition("@")
        return [] if package and version[:1].isdigit() else [f"{name}: no exact version in {file.name}"]
    wanted, locked = requirements_in(file), requirements_in(file.with_suffix(".lock"))
    if "--editable ." in file.read_text():
        wanted = {name_of(text): Requirement(text) for text in PROJECT["dependencies"]} | wanted
    return [f"{name}: {each} is not locked" for key, each in wanted.items() if not _fits(locked.get(key), each)]


def requirements_in(file: Path) -> dict[str, Requirement]:
    """The packages in a requirement file or a lock, by name."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith(("#", "--"))]
    return {name_of(line): Requirement(line) for line in lines}


def name_of(requirement: str) -> str:
    """The name of the required package in its normalised form."""
    return canonicalize_name(Requirement(requirement).name)


def outside() -> dict[str, str]:
    """The environment variables without those that select another Python environment.

    Bytecode is written, whatever the caller does with its own: pip leaves it out, and each process would compile anew.
    """
    ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"}
    return {name: value for name, value in os.environ.items() if name not in ours}


def pip(python: Path, *command: str) -> str:
    """Run our own pip, which is newer than the one that a new environment would get, for another environment."""
    return _run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), *command])


def _fits(locked: Requirement | None, wanted: Requirement) -> bool:
    if locked is None:
        return False
    (pin,) = locked.specifier
    return pin.operator == "==" and pin.version in wanted.specifier


def _folder(name: str) -> Path:
    return HOME / (name if PYTHON == _OURS else f"{name}-py{PYTHON}")


def _made(name: str) -> Path:
    """Give the environment's folder, made if needed; other threads and processes wait meanwhile."""
    file, folder = file_of(name), _folder(name)
    lock, done = file.with_suffix(".lock"), folder / "wanted.txt"
    wanted = file.read_text() + (lock.read_text() if lock.exists() else "")
    HOME.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.busy").open("w") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        if not (done.is_file() and done.read_text() == wanted):
            began = time.monotonic()
            if file.suffix == ".npm":
                _install_npm_package(folder, file)
            else:
                shares = name != BASE and "--editable .[local]" in wanted
                base = python_of(BASE).parents[1] if shares else None
                python = _install_python_packages(folder, file, ["--constraint", str(lock)], base)
                if name == BASE:
                    _run([str(python), "-c", "import nat.backend.serve"])  # writes the bytecode that others link
            done.write_text(wanted)
            print(f"made the environment {folder.name} in {time.monotonic() - began:.0f} s", flush=True)
    return folder


def _install_python_packages(folder: Path, file: Path, options: list[str], base: Path | None = None) -> Path:
    """Install a requirement file; paths in it are relative to the repository's root.

    What another environment, `base`, has in the locked versions is linked instead.
    """
    python = folder / "bin" / "python"
    shutil.rmtree(folder, ignore_errors=True)
    chosen = sys.executable if PYTHON == _OURS else interpreter(PYTHON)
    _run([str(chosen), "-m", "venv", "--without-pip", str(folder)])
    if base is not None:
        link_packages(_packages(base), _packages(folder), requirements_in(file.with_suffix(".lock")))
    # `-qq` prints errors only.
    quick = ["-qq", "--no-compile", "--build-constraint", "constraints.txt"]
    pip(python, "install", *quick, *options, "--requirement", str(file))
    return python


def _packages(folder: Path) -> Path:
    (packages,) = (folder / "lib").glob("python*/site-packages")
    return packages


def link_packages(source: Path, target: Path, locked: dict[str, Requirement]) -> None:
    """Link the files of all packages whose version is the locked one, with their bytecode; scripts are left out."""
    for package in distributions(path=[str(source)]):
        pin = locked.get(canonicalize_name(package.name))
        if pin is None or package.version not in pin.specifier:
            continue
        files = {Path(file) for file in package.files or () if ".." not in file.parts}
        bytecode = {
            file.parent / "__pycache__" / f"{file.stem}.{sys.implementation.cache_tag}.pyc"
            for file in files
            if file.suffix == ".py"
        }
        for path in files | bytecode:
            if (source / path).is_file():
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                os.link(source / path, target / path)


def _install_npm_package(folder: Path, file: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    quiet = ["--silent", "--no-audit", "--no-fund"]
    _run(["npm", "install", "--prefix", str(folder), *quiet, file.read_text().strip()])


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


def main() -> None:
    """Make or renew the environments that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m conformance.environments")
    folders = sorted(folder.name for folder in REQUIREMENTS.iterdir())
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"an environment, or one of {', '.join(folders)}")
    parser.add_argument("--renew", action="store_true", help="take the newest releases and write the lock")
    chosen = parser.parse_args()
    if (missing := without_python()) is not None:
        print(missing, flush=True)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        named = [name for each in chosen.names for name in (names(each) or [each])]
        every = [name for name in named if is_for_this_python(name)]
        list(pool.map(renew if chosen.renew else _made, every))


if __name__ == "__main__":
    main()
