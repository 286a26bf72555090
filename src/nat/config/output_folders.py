"""Output folders are tried before anything is played: a run must not end with nowhere to put its results."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from nat.errors import ConfigError


def check_writable(folder: Path, option: str) -> None:
    """Raise ConfigError, naming the option, unless a file can be made in the folder; nothing is left behind."""
    absolute = folder.absolute()
    missing = [path for path in (absolute, *absolute.parents) if not path.exists()]
    existing = absolute.parents[len(missing) - 1] if missing else absolute
    if not existing.is_dir():
        raise ConfigError([f"{option}: {existing} is a file, so {folder} cannot be a folder"])
    try:
        absolute.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=absolute):
            pass
    except OSError as error:
        raise ConfigError(
            [f"{option}: cannot write to {folder}: {error.strerror or error}"],
            hint="choose a folder that you may write to, or change its owner or mode",
        ) from error
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()
