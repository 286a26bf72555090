"""The package's extras: which packages are missing, and the command that installs an extra."""

from collections.abc import Iterable
from importlib.util import find_spec

DISTRIBUTION = "nat-finetuning-harness"


def install_hint(extra: str) -> str:
    """The command that installs an extra, for PyPI and for a clone."""
    return f"pip install '{DISTRIBUTION}[{extra}]', or in a clone: pip install -e '.[{extra}]'"


def missing_packages(needed: Iterable[str]) -> list[str]:
    """The packages that are not installed."""
    return [name for name in needed if find_spec(name) is None]
