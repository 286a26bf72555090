"""One server for all clients, each with its own model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.environments import without_python
from conformance.interop.serving import Served, serving
from conformance.interop.versions import Table

from fakes.tiny_model import make_tiny_model

TABLE = pytest.StashKey[Table]()


def pytest_configure() -> None:
    """Say loudly that nothing is tested where the chosen Python is missing."""
    if (missing := without_python()) is not None:
        pytest.exit(missing, returncode=0)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers whose answers vary enough to be compared, but also repeat."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny-qwen2", spread=2.0)


@pytest.fixture(scope="session")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Our server in ART mode; inference is on port 8000, the only port that the upstream plug-in uses."""
    with serving(tiny_model, tmp_path_factory.mktemp("server"), inference_port=8000) as served:
        yield served


@pytest.fixture(scope="session")
def table(pytestconfig: pytest.Config) -> Iterator[Table]:
    """The table of versions; written after all tests."""
    table = pytestconfig.stash.setdefault(TABLE, Table())
    yield table
    table.write()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table of versions."""
    for row in config.stash.get(TABLE, Table()).rows:
        terminalreporter.write_line(f"{row.result:6} {row.package} {row.versions.get(row.package, '?'):8} {row.role}")
