"""The runs that the dashboard shows: their names in links, and what was read of them and is kept while it holds."""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from nat.dashboard.views import Links, RunView, run_view
from nat.errors import JournalError
from nat.finetuning.diagnosis.gather import findings_in
from nat.runs.find import known_runs, list_runs
from nat.runs.journal import JOURNAL_NAME, reading
from nat.runs.records import Finding, Phase
from nat.runs.rollouts import Outcome

_KEPT = 4
"""Results of each kind in memory; the outcomes of an epoch of 100,000 rollouts take some 20 MB."""


def slug_of(folder: Path) -> str:
    """The name of a run in links: its folder's name, and a digest of the path, since names may repeat."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", folder.name)[:60]
    return f"{name}~{sha256(str(folder.absolute()).encode(errors='surrogateescape')).hexdigest()[:8]}"


class Runs:
    """The runs below a folder, or those that the user knows."""

    def __init__(self, root: Path | None) -> None:
        self.root = root

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
        return _view(folder, _stamps(folder))

    def outcomes(self, folder: Path, phase: Phase, epoch: int) -> Sequence[Outcome]:
        """The rewards of an epoch, which take seconds to read if they are very many."""
        return _outcomes(folder, phase, epoch, _stamps(folder))

    def findings(self, folder: Path) -> Sequence[Finding]:
        """What keeps a run from learning: as its summary has it, or else by its records, which may take seconds."""
        return _findings(folder, _stamps(folder))


Stamps = tuple[tuple[int, int], ...]


def _stamps(folder: Path) -> Stamps:
    """When the journal and its log were changed, and their sizes: what was read before that is read again."""
    files = (folder / JOURNAL_NAME, folder / f"{JOURNAL_NAME}-wal")
    return tuple((found.st_mtime_ns, found.st_size) for found in (file.stat() for file in files if file.exists()))


@lru_cache(_KEPT)
def _view(folder: Path, _when: Stamps) -> RunView:
    with reading(folder) as journal:
        return run_view(journal, Links(f"/runs/{slug_of(folder)}"))


@lru_cache(_KEPT)
def _outcomes(folder: Path, phase: Phase, epoch: int, _when: Stamps) -> Sequence[Outcome]:
    with reading(folder) as journal:
        return journal.outcomes(phase, epoch)


@lru_cache(_KEPT)
def _findings(folder: Path, _when: Stamps) -> Sequence[Finding]:
    with reading(folder) as journal:
        return findings_in(journal)
