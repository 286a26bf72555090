"""The table of tested version pairs, written for the docs page on compatibility."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest
from conformance.environments import PYTHON, REPOSITORY, is_for_this_python

FILE = REPOSITORY / ".tmp" / f"interop_versions-{PYTHON}.json"


@dataclass
class Row:
    """One test; its result is `failed` until it passes."""

    package: str
    environment: str
    role: str
    did: str
    versions: dict[str, str] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    result: str = "failed"


@dataclass
class Table:
    """All rows of this run in the order in which the tests ended."""

    rows: list[Row] = field(default_factory=list)

    @contextlib.contextmanager
    def proof(self, package: str, environment: str, role: str, did: str) -> Iterator[Row]:
        """Add a row, which passes if the block does; skip the test if its releases are for other Pythons."""
        if not is_for_this_python(environment):
            pytest.skip(f"{environment} is not for Python {PYTHON}")
        row = Row(package, environment, role, did)
        self.rows.append(row)
        yield row
        row.result = "works"

    def write(self) -> None:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_text(json.dumps([asdict(row) for row in self.rows], indent=1) + "\n")
