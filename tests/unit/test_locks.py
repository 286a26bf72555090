"""What `make` and CI install is what was tested: nothing that we ask for is left to the newest release of the day."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = ("interop/requirements", "interop/optional", "frameworks/requirements")
WANTED = [file for folder in FOLDERS for file in sorted((ROOT / folder).glob("*.txt"))]


def requirements_in(file):
    """The packages in a requirement file or a lock, by name."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith(("#", "--"))]
    return {canonicalize_name(each.name): each for each in map(Requirement, lines)}


def names_of(texts):
    return {canonicalize_name(Requirement(text).name) for text in texts}


def test_all_that_make_install_asks_for_is_pinned():
    """`constraints.txt` has each package of the extras that go into .venv."""
    asked = [
        PROJECT["dependencies"],
        *(PROJECT["optional-dependencies"][extra] for extra in ("local", "parquet", "dev")),
    ]
    pinned = requirements_in(ROOT / "constraints.txt")
    assert set().union(*map(names_of, asked)) <= set(pinned)
    assert all(str(pin.specifier).startswith("==") for pin in pinned.values())


@pytest.mark.parametrize("file", WANTED, ids=lambda file: file.stem)
def test_each_environment_has_a_lock_that_fits(file):
    """All that the requirement file names is locked at a version that it allows, and so is what our package needs."""
    locked = requirements_in(file.with_suffix(".lock"))
    for name, wanted in requirements_in(file).items():
        (pin,) = locked[name].specifier
        assert pin.operator == "=="
        assert pin.version in wanted.specifier
    if "--editable ." in file.read_text():
        assert names_of(PROJECT["dependencies"]) <= set(locked)
