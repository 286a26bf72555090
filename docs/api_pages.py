"""Sphinx reads it, for the site only: pages from the docstrings of what `promised.py` lists.

`python_page.py` makes the overview of the same names, which GitHub shows, too.
"""

import sys
from dataclasses import is_dataclass
from importlib import import_module
from inspect import get_annotations, isclass, isroutine
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar, get_type_hints

from promised import promised
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock

HEAD = """\
# Python

What the names on these pages do. [Python names](../reference/python.md) lists all of them in a sentence each.

| module | names |
|---|---|
"""
ALIASES = """
## Other paths

These lead to the same objects.

| path | documented as |
|---|---|
"""
MODEL = "   :exclude-members: model_config, model_post_init, type\n"
"""What is not shown of a pydantic model: the library's attributes, and the name that `_type` has."""
MODELS: dict[str, type[BaseModel]] = {}
"""Models by name; autodoc reads a class before its fields."""


def write_pages(app: Sphinx) -> None:
    """Write a page for each module in which a name is at home, and an index."""
    folder = Path(app.srcdir, "api")
    folder.mkdir(exist_ok=True)
    places: dict[object, list[tuple[str, str]]] = {}
    with mock(app.config.autodoc_mock_imports):
        for module, name in ((module, name) for module, names in promised().items() for name in names):
            found = getattr(import_module(module), name)
            if not isinstance(found, ModuleType | TypeVar):
                key = found if isclass(found) or isroutine(found) else (module, name)
                places.setdefault(key, []).append((module, name))
    pages: dict[str, dict[str, str]] = {}
    aliases = ""
    for found, paths in places.items():
        home = min(paths, key=lambda path: path[0] != getattr(found, "__module__", ""))
        kind = "class" if isclass(found) else "function" if isroutine(found) else "data"
        options = MODEL if isclass(found) and issubclass(found, BaseModel) else ""
        pages.setdefault(home[0], {})[home[1]] = (
            f"## {home[1]}\n\n```{{eval-rst}}\n.. auto{kind}:: {'.'.join(home)}\n{options}```\n"
        )
        aliases += "".join(f"| `{'.'.join(path)}` | `{'.'.join(home)}` |\n" for path in paths if path != home)
    for module, names in pages.items():
        (folder / f"{module}.md").write_text("\n".join([f"# {module}\n", *names.values()]), encoding="utf-8")
    rows = "".join(f"| [{module}]({module}.md) | {', '.join(names)} |\n" for module, names in pages.items())
    (folder / "index.md").write_text(HEAD + rows + ALIASES + aliases, encoding="utf-8")


def hide_signature(_app: Sphinx, _kind: str, _name: str, found: object, *_: object) -> tuple[str, None] | None:
    """The fields of a record stand below it, so its constructor need not list them."""
    return ("", None) if isclass(found) and (issubclass(found, BaseModel) or is_dataclass(found)) else None


def read_docstring(_app: Sphinx, kind: str, name: str, found: object, _options: object, lines: list[str]) -> None:
    """Show errors as a list, and a model with the fields of its bases, their plain types and defaults."""
    if kind == "class" and isclass(found) and issubclass(found, BaseModel):
        hints: dict[str, Any] = {}
        for each in reversed(found.__mro__[: found.__mro__.index(BaseModel)]):
            own = SimpleNamespace(__annotations__=get_annotations(each))
            hints |= get_type_hints(own, vars(sys.modules[each.__module__]))
        found.__annotations__ = {field: hints[field] for field in (*found.model_fields, *get_annotations(found))}
        MODELS[name] = found
    text = "\n".join(lines)
    if text.startswith("Alias for field number") or (kind == "data" and text[:40] in str(type(found).__doc__)):
        lines.clear()  # these are Python's own words
    model, _, field = name.rpartition(".")
    info = MODELS[model].model_fields.get(field) if kind == "attribute" and model in MODELS else None
    if info is not None and not info.is_required():
        lines += ["", f"Default: ``{info.get_default(call_default_factory=True)!r}``"]
    if "Raises:" in lines:
        start = lines.index("Raises:")
        lines[start:] = ["", *(f":raises {line.strip()}" if is_first(line) else line for line in lines[start + 1 :])]


def is_first(line: str) -> bool:
    """Whether a line of a section begins an item, and does not go on with one."""
    return line.startswith("    ") and not line.startswith("     ")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("autodoc-process-docstring", read_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
