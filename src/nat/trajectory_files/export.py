"""Write the rollouts of a run as a file of JSON lines for other trainers, one group at a time."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from pydantic import BaseModel

from nat.errors import NoTrajectories, StorageError
from nat.files import replacing
from nat.reports.rollouts import check_played
from nat.runs.journal import Journal
from nat.runs.records import Phase
from nat.secrets import known_secrets
from nat.trajectory_files.formats import Form, RowOptions, rows_of
from nat.trajectory_files.generations import LeftOut, group_of

_SUFFIX = ".jsonl"
Played = tuple[Phase, int]
"""The rollouts of a training epoch or a validation, numbered as in the journal."""


class LeftOutCount(BaseModel):
    """How many of what are not in the file, and why."""

    what: str
    count: int
    why: str

    def __str__(self) -> str:
        return f"{self.count} {self.what}{'' if self.count == 1 else 's'}: {self.why}"


class ExportedTrajectories(BaseModel):
    """What an export wrote, and what it left out."""

    file: str
    form: Form
    rows: int
    groups: int
    """Groups of which the file has a row."""
    rollouts: int
    """Rollouts of the chosen epochs, those that are left out included."""
    left_out: list[LeftOutCount]
    """The most frequent reason first."""

    def __str__(self) -> str:
        text = f"{self.rows} rows ({self.form}) of {self.groups} groups, from {self.rollouts} rollouts → {self.file}"
        return "\n".join([text, *(f"left out: {each}" for each in self.left_out)])


def export_trajectories(
    journal: Journal, chosen: Sequence[Played], path: Path, options: RowOptions, *, force: bool = False
) -> ExportedTrajectories:
    """Write the rows of the chosen epochs and validations; without any chosen, of all training epochs.

    Raises:
        JournalError: an epoch was not played.
        NoTrajectories: there would be no rows; no file is written.
        StorageError: the file exists, or cannot be written under this name.

    """
    if path.suffix != _SUFFIX:
        raise StorageError(
            f"{path} ends with {path.suffix or 'no suffix'}; trajectories are written as {_SUFFIX}",
            hint="give the file this suffix",
        )
    if path.is_dir():
        raise StorageError(f"{path} is a folder", hint="give the name of a file in it")
    if path.exists() and not force:
        raise StorageError(f"{path} exists already", hint="give another name, or --force to replace it")
    for phase, epoch in chosen:
        check_played(journal, phase, epoch)
    left_out: Counter[LeftOut] = Counter()
    rows = groups = rollouts = 0
    with replacing(path) as file:
        for phase, epoch in chosen or [(Phase.TRAIN, epoch) for epoch in journal.played(Phase.TRAIN)]:
            for example_id, records in groupby(journal.rollouts(phase, epoch), lambda record: record.example_id):
                of_example = list(records)
                group, failed = group_of(phase, epoch, example_id, of_example)
                made = rows_of(group, options)
                for row in made.rows:
                    line = json.dumps(known_secrets.redact_tree(row), ensure_ascii=False, allow_nan=False)
                    file.write(line.encode() + b"\n")
                left_out += failed + made.left_out
                rows, groups, rollouts = rows + len(made.rows), groups + bool(made.rows), rollouts + len(of_example)
        counts = [LeftOutCount(what=what, count=count, why=why) for (what, why), count in left_out.most_common()]
        if not rows:
            raise NoTrajectories(
                f"no rows of {options.form} in {rollouts} rollouts; left out: {'; '.join(map(str, counts)) or 'none'}",
                hint="choose other epochs, a smaller --margin or --min_reward, or another --as; "
                "`nat runs show RUN --epoch N` shows the rollouts",
            )
    return ExportedTrajectories(
        file=str(path), form=options.form, rows=rows, groups=groups, rollouts=rollouts, left_out=counts
    )
