"""Record the runs again: `cd tests && python -m recorded [NAME …]`. Read the difference before you commit it."""

import gzip
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from nat.runs.journal import JOURNAL_NAME
from recorded.playing import play
from recorded.runs import RUNS
from recorded.shown import shown

DATA = Path(__file__).with_name("data")


def record(name: str) -> None:
    """Write what the run shows, and its journal if there is none yet: an old one is to stay readable."""
    with tempfile.TemporaryDirectory() as folder:
        play(name, Path(folder))
        (DATA / f"{name}.txt").write_text(shown(Path(folder)))
        journal = DATA / f"{name}.sqlite.gz"
        if not journal.exists():
            file = Path(folder) / "runs" / "latest" / JOURNAL_NAME
            with closing(sqlite3.connect(file)) as connection:
                connection.execute("UPDATE failures SET way = replace(way, ?, 'repository')", (str(DATA.parents[2]),))
                for table in ("facts", "rollouts", "jobs", "epochs", "validations", "failures"):
                    scrubbed = f"UPDATE {table} SET record = replace(replace(record, ?, 'repository'), ?, 'project')"  # noqa: S608 - our tables
                    connection.execute(scrubbed, (str(DATA.parents[2]), folder))
                connection.commit()
                connection.execute("VACUUM")
            journal.write_bytes(gzip.compress(file.read_bytes(), mtime=0))


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for chosen in sys.argv[1:] or RUNS:
        record(chosen)
        print(chosen)
