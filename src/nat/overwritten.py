"""Find distributions of the upstream toolkit in our environment: they bring the package `nat`, too, and files mix.

Installed before ours, they are found when our command starts. Installed after it, they replace our command; theirs
loads the entry points of the group `nat.cli`, and so our `command`, which ends it. Imports nothing of `nat`: its other
modules may be theirs.
"""

import importlib.metadata
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError

OURS = "nat-finetuning-harness"
CONFLICTING = (
    *("nvidia-nat", "nvidia-nat-core", "nvidia-nat-eval"),
    *("nvidia-nat-nemo-customizer", "nvidia-nat-openpipe-art"),
)
"""Distributions with files that ours has, too. Other plug-ins for the toolkit have none, but require its core."""
STAND_IN = "+nat.finetuning.harness"
"""End of the version of `stand_ins/`, which have no files."""
HINT = (
    "pip uninstall --yes {names}; pip install --force-reinstall --no-deps CLONE, where CLONE is the folder of "
    f"{OURS}; or use an environment of its own for each. What the plug-ins for OpenPipe ART and NeMo Customizer do "
    "is part of ours"
)


def conflict(version: Callable[[str], str] = importlib.metadata.version) -> tuple[str, str] | None:
    """What is installed beside ours, and how to mend it; None if nothing conflicts."""
    found = {}
    for name in CONFLICTING:
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        if not installed.endswith(STAND_IN):
            found[name] = installed
    if not found:
        return None
    listed = ", ".join(f"{name} {installed}" for name, installed in found.items())
    message = f"in this environment are {listed} and {OURS}; they bring the same package `nat`, and their files mix"
    return message, HINT.format(names=" ".join(found))


def __getattr__(name: str) -> object:
    """End the upstream toolkit's command, which loads `command`."""
    if name == "command" and (found := conflict()) is not None:
        raise SystemExit(f"Error: {found[0]}\n  → {found[1]}")
    raise AttributeError(name)
