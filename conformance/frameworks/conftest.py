"""Each framework is played once; every test looks at what was captured and at what the server saw.

`pytest conformance/frameworks --framework langchain` plays one of them; the option can be given several times.
"""

import json

import pytest
from conformance.frameworks import figures
from conformance.frameworks.driver import Played, names, played


def pytest_addoption(parser: pytest.Parser) -> None:
    """All frameworks if none is named."""
    parser.addoption("--framework", action="append", choices=names(), help="play this framework only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test with every framework that is wanted."""
    if "run" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--framework") or names()
        # `--dist loadgroup` keeps a framework's tests in one process, since each process that has one of them plays it.
        runs = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in chosen]
        metafunc.parametrize("run", runs, indirect=True, scope="session")


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """One framework's rollouts; its figures are kept for the docs, whatever they are."""
    run = played(request.param, tmp_path_factory.mktemp(request.param))
    figures.keep(run)
    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was made and captured, as far as it is known."""
    known = json.loads(figures.FILE.read_text()) if figures.FILE.exists() else {}
    for name, row in known.items():
        line = f"{name:18} captured {row['captured']} of {row['made']} calls, {row['mismatches']} differences"
        line += f", {row['rows_per_rollout']:g} rows, {row['broken_prefixes']} broken"
        terminalreporter.write_line(f"{line}, in {row['seconds']:.0f} s")
