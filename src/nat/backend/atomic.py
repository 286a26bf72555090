"""Folders that are there whole or not at all, even if the machine stops in the middle."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".unfinished-"
"""Prefix of folders that are being written; what bears it after a crash can go."""


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Lend an empty folder that becomes `target`, in place of an older one, when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=target.parent))
    try:
        yield draft
        draft.chmod(0o755)  # mkdtemp's folders are for the owner alone
        for path in [*draft.rglob("*"), draft]:
            _sync(path)
        if target.exists():
            shutil.rmtree(_moved_away(target))
        draft.replace(target)
        _sync(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def point(link: Path, target: str) -> None:
    """Make `link` a symbolic link to its sibling `target`, in one step."""
    draft = link.with_name(f"{UNFINISHED}{link.name}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(link)
    _sync(link.parent)


def remove_folder(target: Path) -> None:
    """Delete a folder; it is gone at once under its name, and nothing happens if it is not there."""
    with suppress(FileNotFoundError):
        shutil.rmtree(_moved_away(target))


def remove_unfinished(folder: Path) -> None:
    """Clear away what a crash left behind; nobody else may be writing there."""
    for path in folder.glob(f"{UNFINISHED}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _moved_away(target: Path) -> Path:
    away = target.with_name(f"{UNFINISHED}old-{target.name}")
    shutil.rmtree(away, ignore_errors=True)
    target.replace(away)
    return away


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
