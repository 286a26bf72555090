"""Folders that are there whole or not at all, even if the machine stops in the middle."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".unfinished-"
"""Prefix of folders that are being written; what bears it after a crash can go."""
REPLACED = f"{UNFINISHED}replaced-"
"""Prefix of a folder that gives way to a new one under its name."""
REMOVED = f"{UNFINISHED}removed-"
"""Prefix of a folder that is being deleted."""


@contextmanager
def whole_folder(target: Path, *, may_replace: Callable[[Path], bool] = lambda _: True) -> Iterator[Path]:
    """Lend an empty folder that becomes `target`, in place of an older one, when the block ends well.

    Raises:
        FileExistsError: what stands there already may not be replaced; it is as it was.

    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _check_replaceable(target, may_replace)
    draft = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=target.parent))
    try:
        yield draft
        for path in [*draft.rglob("*"), draft]:
            _sync(path)
        _check_replaceable(target, may_replace)
        replaced = _moved_away(target, REPLACED) if os.path.lexists(target) else None
        draft.rename(target)  # fails where somebody else has put something there since
        _sync(target.parent)
        if replaced is not None:
            _delete(replaced)
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
        _delete(_moved_away(target, REMOVED))


def remove_unfinished(folder: Path) -> None:
    """Clear away what a crash left behind; nobody else may be writing there.

    A folder that was about to be replaced, and has no successor under its name, gets its name back.
    """
    for path in sorted(folder.glob(f"{UNFINISHED}*")):
        name = path.name.removeprefix(REPLACED)
        if path.name.startswith(REPLACED) and not os.path.lexists(folder / name):
            path.rename(folder / name)
        else:
            _delete(path)


def _check_replaceable(target: Path, may_replace: Callable[[Path], bool]) -> None:
    if os.path.lexists(target) and not may_replace(target):
        raise FileExistsError(f"{target} is not ours to replace")


def _moved_away(target: Path, prefix: str) -> Path:
    away = target.with_name(f"{prefix}{target.name}")
    _delete(away)
    target.replace(away)
    return away


def _delete(path: Path) -> None:
    """Delete a folder, a file, or a link and not what it leads to; nothing happens if it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
