"""The table of who was tried with whom, written for the page of the docs that says which versions work."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from conformance.environments import REPOSITORY

FILE = REPOSITORY / ".tmp" / "interop_versions.json"


@dataclass
class Row:
    """One proof; it has failed until it has not."""

    package: str
    environment: str
    role: str
    did: str
    versions: dict[str, str] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    result: str = "failed"


@dataclass
class Table:
    """All rows of this run, in the order in which the proofs ended."""

    rows: list[Row] = field(default_factory=list)

    @contextlib.contextmanager
    def proof(self, package: str, environment: str, role: str, did: str) -> Iterator[Row]:
        """Enter a row, which works if the block does."""
        row = Row(package, environment, role, did)
        self.rows.append(row)
        yield row
        row.result = "works"

    def write(self) -> None:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_text(json.dumps([asdict(row) for row in self.rows], indent=1) + "\n")
