"""The runs that the dashboard shows: their names in links, and what was read of them and is kept while it holds."""

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from nat.dashboard.views import Links, RunView, run_view
from nat.errors import JournalError
from nat.finetuning.diagnosis.gather import findings_in
from nat.runs.find import known_runs, list_runs
from nat.runs.journal import JOURNAL_NAME, Journal, reading
from nat.runs.records import Finding, Phase
from nat.runs.rollouts import Outcome

T = TypeVar("T")

_KEPT = 8
"""Results in memory; the outcomes of an epoch of 100,000 rollouts take some 20 MB."""


def slug_of(folder: Path) -> str:
    """The name of a run in links: its folder's name, and a digest of the path, since names may repeat."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", folder.name)[:60]
    return f"{name}~{sha256(str(folder.absolute()).encode(errors='surrogateescape')).hexdigest()[:8]}"


class Runs:
    """The runs below a folder, or those that the user knows."""

    def __init__(self, root: Path | None) -> None:
        self.root = root
        self._kept = Kept()

    def folders(self) -> list[Path]:
        """Their folders, the newest first."""
        if self.root is not None:
            return list_runs(self.root)
        here, elsewhere = known_runs()
        return here or elsewhere

    def folder(self, slug: str) -> Path:
        """The folder of a run.

        Raises:
            JournalError: there is no such run.

        """
        found = next((folder for folder in self.folders() if slug_of(folder) == slug), None)
        if found is None:
            raise JournalError(f"there is no run {slug}", hint="it may have been moved; go back to all runs")
        return found

    def view(self, folder: Path) -> RunView:
        """What the page of a run shows."""
        return self._read(folder, ("view",), lambda journal: run_view(journal, Links(f"/runs/{slug_of(folder)}")))

    def outcomes(self, folder: Path, phase: Phase, epoch: int) -> Sequence[Outcome]:
        """The rewards of an epoch, which take seconds to read if they are very many."""

        def read(journal: Journal) -> Sequence[Outcome]:
            return journal.outcomes(phase, epoch)

        return self._read(folder, (phase, epoch), read)

    def findings(self, folder: Path) -> Sequence[Finding]:
        """What keeps a run from learning: as its summary has it, or else by its records, which may take seconds."""
        return self._read(folder, ("findings",), findings_in)

    def _read(self, folder: Path, what: tuple[Any, ...], read: Callable[[Journal], T]) -> T:
        def fresh() -> T:
            with reading(folder) as journal:
                return read(journal)

        return self._kept.get((folder, *_stamps(folder), *what), fresh)


class Kept:
    """The last results of reading, by what was read and when it had changed. Safe for threads."""

    def __init__(self) -> None:
        self._results: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = Lock()

    def get(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """The result for a key, made if it is not there."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                found: T = self._results[key]
                return found
        made = make()  # not under the lock, since it may take long; two threads may do it at once
        with self._lock:
            self._results[key] = made
            while len(self._results) > _KEPT:
                self._results.popitem(last=False)
        return made


def _stamps(folder: Path) -> list[tuple[int, int]]:
    """When the journal and its log were changed, and their sizes."""
    files = (folder / JOURNAL_NAME, folder / f"{JOURNAL_NAME}-wal")
    return [(found.st_mtime_ns, found.st_size) for found in (file.stat() for file in files if file.exists())]
