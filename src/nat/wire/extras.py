"""The package's extras: which packages are missing, and the command that installs an extra."""

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

DISTRIBUTION = "nat-finetuning-harness"
_OF_EXTRA = re.compile(r"([\w.-]+).*\bextra == ['\"]([\w-]+)['\"]")


def requirement(extras: Iterable[str]) -> str:
    """The package with extras, as an argument of `pip install`."""
    return f"'{DISTRIBUTION}[{','.join(extras)}]'"


def install_hint(*extras: str) -> str:
    """The command that installs extras, for PyPI and for a clone."""
    return f"pip install {requirement(extras)}, or in a clone: pip install -e '.[{','.join(extras)}]'"


def missing_packages(needed: Iterable[str]) -> list[str]:
    """The packages that are not installed."""
    return [name for name in needed if find_spec(name) is None]


def missing_of_extra(extra: str) -> list[str]:
    """The distributions of an extra that are not installed, whatever their versions."""
    found = (_OF_EXTRA.match(each) for each in requires(DISTRIBUTION) or [])
    return [each[1] for each in found if each is not None and each[2] == extra and not _is_installed(each[1])]


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
