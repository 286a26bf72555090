"""Import the Python files and modules that a configuration names; their decorators register its components."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path

from nat.errors import RegistryError, describe_error
from nat.registry.replacements import replacement_for


def import_components(name: str) -> None:
    """Import a module by its name, or a file by its path, which ends in `.py`; each once per process.

    Both may import their neighbours, as scripts do: Python searches first in the file's folder, or in the current
    folder for a module.

    Raises:
        RegistryError: it is not there, another module has its name, or it raises.

    """
    path = Path(name) if name.endswith(".py") else None
    _search_first(Path() if path is None else path.parent)
    module = name if path is None else _module_of(path)
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise _refused(name, module, error) from error


def _search_first(folder: Path) -> None:
    found = str(folder.resolve())
    if found not in sys.path:
        sys.path.insert(0, found)
    importlib.invalidate_caches()


def _module_of(path: Path) -> str:
    """The name under which Python imports the file."""
    if not path.is_file():
        raise RegistryError(f"the file {path} does not exist", hint=f"paths start at {Path.cwd()}")
    found = _origin(path.stem)
    if found is None or Path(found).resolve() != path.resolve():
        raise RegistryError(
            f"{path} cannot be imported as '{path.stem}': Python finds {found or 'nothing'} under this name",
            hint="rename the file",
        )
    return path.stem


def _origin(module: str) -> str | None:
    """Where Python takes a module from; None if it finds none."""
    try:
        known = sys.modules.get(module)
        spec = importlib.util.find_spec(module) if known is None else known.__spec__
    except ImportError:  # a name with a dot in it, whose first part is no package
        return None
    return getattr(known, "__file__", None) if spec is None else spec.origin


def _refused(name: str, module: str, error: BaseException) -> RegistryError:
    if isinstance(error, ModuleNotFoundError) and error.name == module:
        hint = f"a file is a path that ends in .py; modules are searched in {Path.cwd()} and where Python finds others"
        return RegistryError(f"there is no module '{module}'", hint=hint)
    frames = traceback.extract_tb(error.__traceback__)
    own = next((frame for frame in reversed(frames) if not frame.filename.startswith("<")), frames[-1])
    text = f"{describe_error(error)}{replacement_for(error)}"
    return RegistryError(f"{name} cannot be imported: {text} ({own.filename}, line {own.lineno})")
