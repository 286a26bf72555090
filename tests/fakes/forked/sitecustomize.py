"""Python imports this at its start where tests put this folder on its path: a process of `nat` is then a fork."""

import os
import sys

MODULES = (
    "nat.backend",
    "nat.backend.calculator",
    "nat.backend.export",
    "nat.backend.fits",
    "nat.backend.folder_check",
    "nat.backend.gguf_reading",
    "nat.runs.plot",
)
COMMAND = "nat.cli.main"
"""A program in the arguments that imports this is a command of `nat`."""


def forkable(arguments: list[str]) -> bool:
    """True for `python [-P] -m MODULE …` and `python -c PROGRAM …`."""
    match [word for word in arguments[1:] if word != "-P"]:
        case ["-m", module, *_]:
            return module in MODULES
        case ["-c", program, *_]:
            return COMMAND in program
        case _:
            return False


if (address := os.environ.get("TESTS_FORK_NAT_AT")) and forkable(sys.orig_argv):
    from stand_in_of_fork import stand_for_a_fork

    stand_for_a_fork(address)
