"""Run each framework's agent once; the tests compare the captured calls with the server's log.

`pytest conformance/frameworks --framework langchain` runs one of them; the option may be repeated.
"""

import json

import pytest
from conformance.frameworks import figures
from conformance.frameworks.driver import Played, names, played


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--framework`; by default all frameworks are tested."""
    parser.addoption("--framework", action="append", choices=names(), help="test only this framework (repeatable)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with each selected framework."""
    if "run" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--framework") or names()
        # `--dist loadgroup` keeps a framework's tests in one process, since each process runs the agent again.
        runs = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in chosen]
        metafunc.parametrize("run", runs, indirect=True, scope="session")


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """One framework's rollouts; the figures for the docs are written even if tests fail."""
    run = played(request.param, tmp_path_factory.mktemp(request.param))
    figures.keep(run)
    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures of the frameworks that ran."""
    known = json.loads(figures.FILE.read_text()) if figures.FILE.exists() else {}
    for name, row in known.items():
        line = f"{name:18} captured {row['captured']} of {row['made']} calls, {row['mismatches']} differences"
        line += f", {row['rows_per_rollout']:g} rows, {row['broken_prefixes']} broken"
        terminalreporter.write_line(f"{line}, in {row['seconds']:.0f} s")
