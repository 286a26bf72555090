"""Each framework plug-in keeps its documented promises, in the framework's environment."""

import subprocess
from pathlib import Path

import pytest
from conformance.environments import outside, python_of

PROMISES = Path(__file__).parent / "promises"
DEADLINE_S = 300


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test every framework that has promises, or the selected ones."""
    names = sorted(file.stem for file in PROMISES.glob("*.py"))
    wanted = metafunc.config.getoption("--framework") or names
    metafunc.parametrize("framework", [name for name in names if name in wanted])


def test_the_promises_are_kept(framework: str) -> None:
    """Each function of a script tests one promise.

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
