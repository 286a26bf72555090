"""Run each framework's agent once; the tests compare the captured calls with the server's log.

`pytest conformance/frameworks --framework langchain` runs one of them; the option may be repeated.
"""

import pytest
from conformance.frameworks.driver import Played, names, played
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling


class ByFramework(LoadScopeScheduling):
    """Run a file's tests of one framework in one process, since each process plays the agent itself.

    The marks of `--dist loadgroup` have no effect: pytest 9.2 ignores the ids to which pytest-xdist 3.8 adds them.
    """

    def _split_scope(self, nodeid: str) -> str:
        """The file and the first parameter, which is the framework."""
        file, _, test = nodeid.partition("::")
        framework = test.partition("[")[2].removesuffix("]").partition("-")[0]
        return f"{file} {framework}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFramework:
    """Use our scheduler, whatever `--dist` says."""
    return ByFramework(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--framework`; by default all frameworks are tested."""
    parser.addoption("--framework", action="append", choices=names(), help="test only this framework (repeatable)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with each selected framework."""
    if "run" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--framework") or names()
        metafunc.parametrize("run", chosen, indirect=True, scope="session")


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """One framework's rollouts."""
    return played(request.param, tmp_path_factory.mktemp(request.param))
