"""Each framework's plug-in behaves as documented, in the framework's own environment."""

import os
import subprocess
from pathlib import Path

import pytest
from conformance.environments import REPOSITORY, outside, python_of

SCRIPTS = Path(__file__).parent / "plugin_tests"
DEADLINE_S = 300


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test every framework that has a script in `plugin_tests/`, or the selected ones."""
    names = sorted(file.stem for file in SCRIPTS.glob("*.py"))
    wanted = metafunc.config.getoption("--framework") or names
    metafunc.parametrize("framework", [name for name in names if name in wanted])


def test_the_plugin_behaves_as_documented(framework: str) -> None:
    """Each function of the framework's script passes.

    `-P` keeps the script's folder off the path, because a script has the name of the package that it imports.
    """
    ended = subprocess.run(
        [python_of(framework), "-P", SCRIPTS / f"{framework}.py"],
        env=outside() | {"PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-6000:]
