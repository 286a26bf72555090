"""Each framework is played once; every test looks at what was captured and at what the server saw.

`pytest frameworks --framework langchain` plays one of them; the option can be given several times.
"""

import json
from typing import Any

import environments
import pytest
import results
from playing import Played, played
from xdist.scheduler import LoadScopeScheduling


def pytest_addoption(parser: pytest.Parser) -> None:
    """All frameworks if none is named."""
    parser.addoption("--framework", action="append", choices=environments.names(), help="play this framework only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test with every framework that is wanted."""
    if "run" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--framework") or environments.names()
        metafunc.parametrize("run", chosen, indirect=True, scope="session")


class ByFramework(LoadScopeScheduling):
    """All tests of a framework in the same process, since each process that has one of them plays it."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("[")[2].rstrip("]").partition("-")[0] or nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFramework:
    """Deal the tests out so if there are several processes (`--numprocesses`)."""
    return ByFramework(config, log)


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """One framework's rollouts; its figures are kept for the docs, whatever they are."""
    run = played(request.param, tmp_path_factory.mktemp(request.param))
    results.keep(run)
    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was made and captured, as far as it is known."""
    known = json.loads(results.FILE.read_text()) if results.FILE.exists() else {}
    for name, row in known.items():
        line = f"{name:18} captured {row['captured']} of {row['made']} calls, {row['mismatches']} differences"
        line += f", {row['rows_per_rollout']:g} rows, {row['broken_prefixes']} broken"
        terminalreporter.write_line(f"{line}, in {row['seconds']:.0f} s")
