"""An optional framework that is not installed is an error of the configuration, not of the import system."""

from collections.abc import Iterator
from contextlib import contextmanager

from nat.errors import ConfigError
from nat.wire.extras import install_hint


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Import a framework inside the block; ConfigError names the extra that brings what is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            [f"wrapper_type '{extra}': the package '{error.name}' is not installed"],
            source="the environment",
            hint=install_hint(extra),
        ) from error
