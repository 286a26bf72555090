"""Import the Python files and modules that a configuration names; their decorators register its components."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from nat.errors import (
    NatError,
    RegistryError,
    describe_error,
    did_you_mean,
    did_you_mean_path,
    own_client_hint,
    place_of,
)
from nat.files import expanded


def replacement_for(error: BaseException) -> str:
    """Where to read what this project has in place of a missing name of `nat`; empty for other packages."""
    missing = isinstance(error, ImportError) and f"{error.name}.".startswith("nat.")
    return ": this project has no such name; docs/from/nat.md lists what is here" if missing else ""


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
    folder = str((Path() if path is None else path.parent).resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    module = name if path is None else _module_of(path)
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise _refused(name, module, error) from error


def _module_of(path: Path) -> str:
    """The name under which Python imports the file."""
    if not path.is_file():
        raise RegistryError(
            f"the file {path} does not exist{did_you_mean_path(path)}", hint=f"paths start at {Path.cwd()}"
        )
    try:
        spec = importlib.util.find_spec(path.stem)
    except ImportError:  # a name with a dot in it, whose first part is no package
        spec = None
    found = None if spec is None else spec.origin
    if found is None or Path(found).resolve() != path.resolve():
        raise RegistryError(
            f"{path} cannot be imported as '{path.stem}': Python finds {found or 'nothing'} under this name",
            hint="rename the file",
        )
    return path.stem


def _refused(name: str, module: str, error: BaseException) -> RegistryError:
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        hint = f"a file is a path that ends in .py; modules are searched in {Path.cwd()} and where Python finds others"
        return RegistryError(f"there is no module '{module}'", hint=hint)
    if isinstance(error, SyntaxError) and error.filename is not None:
        return RegistryError(f"{name} cannot be imported: {error.msg} ({error.filename}, line {error.lineno})")
    text = error.in_line if isinstance(error, NatError) else describe_error(error).partition("\n")[0]
    seen = f"{name} cannot be imported: {text}{replacement_for(error)} ({place_of(error)})"
    return RegistryError(seen, hint=own_client_hint(error))
