"""The folder of one rollout: what the program starts with, and what it leaves behind.

work/    where the program runs
home/    its HOME, so that settings in the user's own change nothing
tmp/     its TMPDIR
stdin, stdout, stderr
"""

import asyncio
import json
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_READ_BYTES = 32 * 2**20
"""Of one file that a program leaves; more is no answer."""
_TAIL_BYTES = 2000


class NotLeft(ValueError):
    """A file that the program should have left is not there, or is not what it should be."""


@dataclass(frozen=True)
class RolloutFolder:
    """Where one program runs."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def scratch(self) -> Path:
        return self.root / "tmp"

    @property
    def stdin(self) -> Path:
        return self.root / "stdin"

    @property
    def stdout(self) -> Path:
        return self.root / "stdout"

    @property
    def stderr(self) -> Path:
        return self.root / "stderr"

    def complaint(self) -> str:
        """The end of what the program wrote to stderr."""
        with self.stderr.open("rb") as file:
            file.seek(max(0, self.stderr.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace").strip()

    def read(self, name: str) -> str:
        """A file in `work`; NotLeft if there is none there, since a link may lead elsewhere."""
        path = self.work / name
        if not path.resolve().is_relative_to(self.work.resolve()) or not path.is_file():
            raise NotLeft(f"the program left no file {name!r}")
        return read_text(path)

    def read_number(self, name: str) -> float:
        """The one number in a file; NotLeft if it is none."""
        text = self.read(name).strip()
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not abs(number) < float("inf"):
            raise NotLeft(f"the file {name!r} holds {text[:100]!r} and not one number")
        return number


@asynccontextmanager
async def opened_folder(start: Path | None, *, kept_in: Path | None, name: str) -> AsyncIterator[RolloutFolder]:
    """A new folder, with a copy of `start` to work in; deleted at the end, or kept below `kept_in` under its name."""
    folder = await asyncio.to_thread(_make, start, kept_in, name)
    try:
        yield folder
    finally:
        gone = [folder.root] if kept_in is None else [folder.home, folder.scratch]
        for path in gone:
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def read_text(path: Path) -> str:
    """What stands in a file; NotLeft if that is too much."""
    if path.stat().st_size > MAX_READ_BYTES:
        raise NotLeft(f"{path.name} is larger than {MAX_READ_BYTES} bytes")
    return path.read_text(encoding="utf-8", errors="replace")


def _make(start: Path | None, kept_in: Path | None, name: str) -> RolloutFolder:
    if kept_in is not None:
        kept_in.mkdir(parents=True, exist_ok=True)
    prefix = "nat-command-" if kept_in is None else re.sub(r"[^\w.#-]+", "_", name).strip(".") + "-"
    folder = RolloutFolder(Path(tempfile.mkdtemp(prefix=prefix, dir=kept_in)).absolute())
    for path in (folder.home, folder.scratch):
        path.mkdir()
    if start is None:
        folder.work.mkdir()
    else:
        shutil.copytree(start, folder.work, symlinks=True)
    return folder
