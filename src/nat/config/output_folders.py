"""Output folders are tried before anything is played: a run must not end with nowhere to put its results."""

import os
from pathlib import Path

from nat.errors import ConfigError


def check_writable(folder: Path, option: str) -> None:
    """Raise ConfigError, naming the option, unless the folder can be written to or made."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ConfigError([f"{option}: {existing} is a file, so {folder} cannot be a folder"])
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(
            [f"{option}: no permission to write to {existing}"],
            hint="choose a folder that you may write to, or change its owner or mode",
        )
