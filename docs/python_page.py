"""The page `reference/python.md`: the import paths that `promised.py` lists, with signatures and first sentences."""

import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any

from promised import GUIDE, OWN, TOOLKIT
from pydantic import BaseModel
from reference_tables import cell, first_sentence

HEAD = """\
# Python names

`make docs` generates this page from the code. Plug-ins can rely on these import
paths: a change to one of them is told in the [changelog](../../CHANGELOG.md). [Components of your
own](../extend/components.md) shows how they are used.
"""
GROUPS: Mapping[str, Mapping[str, str]] = {
    "Components for finetuning": GUIDE,
    "Only in this project": OWN,
    "Other paths of the toolkit": TOOLKIT,
}


def python_page() -> str:
    """A table per group, with a row per name."""
    return HEAD + "".join(f"\n## {title}\n\n{_table(group)}" for title, group in GROUPS.items())


def _table(group: Mapping[str, str]) -> str:
    rows = [row for module in sorted(group) for row in _rows(module, sorted(group[module].split()))]
    return "| module | name | what it is |\n|---|---|---|\n" + "".join(rows)


def _rows(module: str, names: list[str]) -> Iterator[str]:
    for at, name in enumerate(names):
        found = getattr(import_module(module), name)
        yield f"| {'' if at else f'`{module}`'} | `{name}{cell(_signature(found))}` | {cell(_summary(found))} |\n"


def _signature(found: Any) -> str:
    """The names of the parameters; none for records, whose fields are many, and for constants."""
    if isinstance(found, type):
        if issubclass(found, BaseModel | Enum) or found.__init__ is object.__init__:
            return ""
        parameters = list(inspect.signature(found.__init__).parameters.values())[1:]
        if [each.name for each in parameters] == ["args", "kwargs"]:
            return ""
    elif inspect.isfunction(found):
        parameters = list(inspect.signature(found).parameters.values())
    else:
        return ""
    return f"({', '.join(_parameters(parameters))})"


def _parameters(parameters: list[inspect.Parameter]) -> Iterator[str]:
    named_only = False
    for each in parameters:
        if each.kind is each.VAR_POSITIONAL:
            named_only = True
        elif each.kind is each.KEYWORD_ONLY and not named_only:
            named_only = True
            yield "*"
        prefix = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        yield f"{prefix}{each.name}{'' if each.default is each.empty else '=…'}"


def _summary(found: Any) -> str:
    if isinstance(found, ModuleType):
        return "The import registers the components of the plug-in."
    if isinstance(found, str):
        return f"The text `{found}`."
    if not isinstance(found, type) and not inspect.isfunction(found):
        return ""
    return first_sentence(inspect.cleandoc(found.__doc__ or ""))
