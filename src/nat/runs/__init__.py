"""The history of a finetuning run: the journal, its records, and the files and plots derived from it.

`Run` opens it in a notebook or a script. It is imported when it is asked for, since `nat` imports this package at once.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nat.runs.run import Run

__all__ = ["Run"]


def __getattr__(name: str) -> object:
    if name != "Run":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nat.runs.run import Run

    return Run
