"""Import the Python files and modules that a configuration names; their decorators register its components."""

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from nat.errors import NatError, RegistryError, describe_error, did_you_mean, did_you_mean_path, place_of
from nat.files import expanded


def import_problem(error: BaseException) -> str:
    """What an import raised, in one line, and where to read about a name of `nat` that this project has not."""
    text = error.in_line if isinstance(error, NatError) else describe_error(error).partition("\n")[0]
    missing = isinstance(error, ImportError) and f"{error.name}.".startswith("nat.")
    return f"{text}: this project has no such name; docs/from/nat.md lists what is here" if missing else text


def function_at(name: str, *takes: str, **named: object) -> Callable[..., Any]:
    """The function at `file.py:function` or `module:function`, which can be called with these arguments.

    Raises:
        RegistryError: it is not there, or has other parameters.

    """
    place, _, attribute = name.rpartition(":" if ":" in name else ".")
    if not place:
        raise RegistryError(f"'{name}' names no file or module", hint="write `file.py:function` or `module:function`")
    names = vars(import_components(place)).items()
    known: dict[str, Callable[..., Any]] = {each: value for each, value in names if callable(value)}
    if (function := known.get(attribute)) is None:
        raise RegistryError(f"{place} has no function '{attribute}'.{did_you_mean(attribute, known)}")
    try:
        inspect.signature(function).bind(*takes, **named)
    except TypeError as error:
        seen = f"{name}: it has the parameters {inspect.signature(function)}"
        raise RegistryError(seen, hint=f"write `def {attribute}({', '.join((*takes, *named))})`") from error
    return function


def import_components(name: str) -> ModuleType:
    """Import a module by its name, or a file by its path, which ends in `.py`; each once per process.

    Both may import their neighbours, as scripts do: Python searches first in the file's folder, or in the current
    folder for a module.

    Raises:
        RegistryError: it is not there, another module has its name, or it raises.

    """
    path = expanded(Path(name)) if name.endswith(".py") else None
    if path is not None and not path.is_file():
        raise RegistryError(
            f"the file {path} does not exist{did_you_mean_path(path)}", hint=f"paths start at {Path.cwd()}"
        )
    folder = str((Path() if path is None else path.parent).resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(name if path is None else path.stem)
    except (Exception, SystemExit) as error:
        raise RegistryError(f"{name} cannot be imported: {import_problem(error)}{place_of(error)}") from error
    found = getattr(module, "__file__", None) or "a built-in module"
    if path is not None and Path(found).resolve() != path.resolve():
        raise RegistryError(
            f"{path} cannot be imported as '{path.stem}': Python finds {found} under this name",
            hint="rename the file",
        )
    return module
