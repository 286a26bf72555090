"""The file of a journal: synced, private, read without trust, and damaged in ways that are told."""

import os
from collections.abc import Iterator

import pytest

from fakes.run_records import NOON, rollout_record
from nat.errors import JournalError
from nat.runs.folder import create_run_folder
from nat.runs.journal import JOURNAL_NAME, Journal, reading
from nat.runs.records import Phase


@pytest.fixture
def journal(tmp_path) -> Iterator[Journal]:
    with Journal.create(tmp_path, "run-1", "seed: 0\n", created_at=NOON) as opened:
        yield opened


def test_commits_are_synced_to_the_disk(journal):
    """With synchronous=FULL in WAL mode, a committed record survives a power cut."""
    assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_journal_is_private_to_its_owner(tmp_path, monkeypatch):
    """The database and its side files are closed to others, whatever the umask."""
    mask = os.umask(0)
    try:
        run_dir = create_run_folder(tmp_path, "run")
        with Journal.create(run_dir, "run", "", created_at=NOON):
            modes = {path.name: oct(path.stat().st_mode & 0o777) for path in [run_dir, *run_dir.iterdir()]}
    finally:
        os.umask(mask)
    files = dict.fromkeys(["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"], "0o600")
    assert modes == {"run": "0o700", **files}


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_reading_a_finished_run_changes_no_file(journal):
    """SQLite would leave its log and index behind, were it not told that nobody writes."""
    journal.close()
    before = files_of(journal.run_dir)
    with reading(journal.run_dir) as read:
        assert read.info().run_id == "run-1"
        assert files_of(journal.run_dir) == before
    assert files_of(journal.run_dir) == before


def test_a_damaged_page_is_an_error_with_a_remedy(journal):
    """Damage behind the beginning of the file is found when it is read, not when the file is opened."""
    journal.record_rollouts(
        Phase.TRAIN, 0, [rollout_record(str(n), messages=[{"role": "user"}] * 99) for n in range(99)]
    )
    journal.close()
    path = journal.run_dir / JOURNAL_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(JournalError, match=r"is damaged: .*\n.*restore the file"), reading(journal.run_dir) as read:
        read.info()
