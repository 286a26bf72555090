"""One server for all clients, each of which registers a model of its own name."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.interop.serving import Served, serving
from conformance.interop.versions import Table

from fakes.tiny_model import make_tiny_model

TABLE = pytest.StashKey[Table]()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers whose answers are spread widely enough to be rewarded, and narrowly enough to be met again."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny-qwen2", spread=2.0)


@pytest.fixture(scope="session")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Our server in ART mode, on port 8000 for answers: the upstream plug-in asks nowhere else."""
    with serving(tiny_model, tmp_path_factory.mktemp("server"), inference_port=8000) as served:
        yield served


@pytest.fixture(scope="session")
def table(pytestconfig: pytest.Config) -> Iterator[Table]:
    """The table of versions; written when all proofs have ended."""
    table = pytestconfig.stash.setdefault(TABLE, Table())
    yield table
    table.write()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what was tried with whom."""
    for row in config.stash.get(TABLE, Table()).rows:
        terminalreporter.write_line(f"{row.result:6} {row.package} {row.versions.get(row.package, '?'):8} {row.role}")
