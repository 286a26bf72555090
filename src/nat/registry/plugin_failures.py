"""Plug-ins that failed to import: remembered, since the user learns of them when a `_type` is missing."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PluginFailure:
    """One entry point whose module could not be imported."""

    name: str
    module: str
    error: str


failures: list[PluginFailure] = []


def explain_failures() -> str:
    """One sentence per failed plug-in, with a leading blank; nothing if all is well."""
    return "".join(f" The plug-in '{f.name}' failed to import ({f.module}): {f.error}." for f in failures)
