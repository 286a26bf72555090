"""The page `reference/records.md`: the fields of the JSON files in a run's folder, by the records' docstrings."""

import ast
import inspect
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from itertools import pairwise
from textwrap import dedent
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel
from reference_tables import cell

from nat.runs.records import EpochRecord, RunSummary
from nat.runs.rollouts import RolloutRecord

HEAD = """\
# Records of a run

`make docs` generates this page from the code: the fields of the JSON files in a [run's folder](run_folder.md). The
journal has the same records. Epochs are counted from 0. Some fields are left out where they have their default.
"""
RECORDS: dict[str, type[BaseModel]] = {
    "training_metrics.jsonl": EpochRecord,
    "trajectories": RolloutRecord,
    "summary.json": RunSummary,
}
_WORDS = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    datetime: "time",
    AwareDatetime: "time",
    NoneType: "null",
    Any: "anything",
}
_MANY = 7
"""So many values are not named."""


def records_page() -> str:
    """A table per file."""
    return HEAD + "".join(f"\n## {name}\n\n{_summary(kind)}\n\n{_table(kind)}" for name, kind in RECORDS.items())


def _summary(kind: type[BaseModel]) -> str:
    return " ".join(inspect.cleandoc(kind.__doc__ or "").split()).replace("None", "null")


def _table(kind: type[BaseModel]) -> str:
    texts = dict(pair for each in reversed(kind.__mro__) if issubclass(each, BaseModel) for pair in _docstrings(each))
    rows = [
        f"| `{name}` | {_type(field.annotation)} | {cell(texts.get(name, '').replace('None', 'null'))} |\n"
        for name, field in kind.model_fields.items()
        if not field.exclude
    ]
    return "| field | type | what it is |\n|---|---|---|\n" + "".join(rows)


def _docstrings(kind: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """The texts below the fields of a class."""
    if kind is BaseModel:
        return
    [found] = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(found, ast.ClassDef)
    for field, text in pairwise(found.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            yield field.target.id, " ".join(str(ast.literal_eval(text.value)).split())


def _type(annotation: Any) -> str:
    """A type in one or two words; few values are named."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join(_type(each) for each in arguments)
    if annotation in _WORDS:
        return _WORDS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        values = [f"`{each.value}`" for each in annotation]
        return " or ".join(values) if len(values) < _MANY else "text"
    return "list" if origin in (list, tuple) else "mapping"
