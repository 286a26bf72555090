"""Write spans to a file, one line of JSON each; with rolling, full files are renamed and the oldest deleted."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nat.telemetry.span import Span


class SpanFile:
    """One file, or a folder's files of one name."""

    def __init__(self, path: Path, project: str, *, max_bytes: int | None, max_files: int, begin_anew: bool) -> None:
        """With `max_bytes`, a path without a suffix is the folder; `begin_anew` empties the file."""
        self._project = project
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._path = path / f"{project}_export.log" if max_bytes is not None and not path.suffix else path
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if begin_anew and not self._path.is_fifo():  # opening one waits for its reader
            self._path.write_bytes(b"")

    def send(self, spans: list[Span]) -> int:
        if self._max_bytes is not None and self._path.exists() and self._path.stat().st_size >= self._max_bytes:
            self._roll()
        lines = (json.dumps(record_of(span, self._project), ensure_ascii=False) for span in spans)
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        return 0

    def close(self) -> None:
        """Nothing stays open."""

    def clean_up(self) -> None:
        """Delete the oldest renamed files beyond `max_files`."""
        rolled = sorted(self._path.parent.glob(f"{self._path.stem}_*{self._path.suffix}"), reverse=True)
        for old in rolled[self._max_files :]:
            old.unlink(missing_ok=True)

    def _roll(self) -> None:
        now = datetime.now(UTC).strftime("%Y%m%d_%H%M%S_%f")
        self._path.rename(self._path.with_name(f"{self._path.stem}_{now}{self._path.suffix}"))
        self.clean_up()


def record_of(span: Span, project: str) -> dict[str, Any]:
    """A span as JSON, with ids in hexadecimal as everywhere, and times in nanoseconds since 1970."""
    return {
        "project": project,
        "trace_id": f"{span.trace_id:032x}",
        "span_id": f"{span.span_id:016x}",
        "parent_id": None if span.parent_id is None else f"{span.parent_id:016x}",
        "name": span.name,
        "start_time": span.started,
        "end_time": span.ended,
        "error": span.error,
        "attributes": span.attributes,
        "events": [{"name": e.name, "time": e.at, "attributes": e.attributes} for e in span.events],
    }
