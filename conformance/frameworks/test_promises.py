"""What a plug-in promises beyond the script, shown in the framework's own environment."""

import subprocess
from pathlib import Path

import pytest
from conformance.environments import outside, python_of

PROMISES = Path(__file__).parent / "promises"
DEADLINE_S = 300


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every framework that has promises, or those that are wanted."""
    names = sorted(file.stem for file in PROMISES.glob("*.py"))
    wanted = metafunc.config.getoption("--framework") or names
    metafunc.parametrize("framework", [name for name in names if name in wanted])


def test_the_promises_are_kept(framework: str) -> None:
    """Each script says in its functions what it shows, and fails where that does not hold.

    `-P`, since a script here has the name of the package that it imports.
    """
    ended = subprocess.run(
        [python_of(framework), "-P", PROMISES / f"{framework}.py"],
        env=outside(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-6000:]
