"""How optional parts are installed: one command for every message that names one."""

from collections.abc import Iterable
from importlib.util import find_spec

DISTRIBUTION = "nat-finetuning-harness"


def install_hint(extra: str) -> str:
    """What to type; in a clone, the same with the folder in place of the name."""
    return f"pip install '{DISTRIBUTION}[{extra}]', or in a clone: pip install -e '.[{extra}]'"


def missing_packages(needed: Iterable[str]) -> list[str]:
    """Those that cannot be imported here."""
    return [name for name in needed if find_spec(name) is None]
