"""Import the Python files and modules that a configuration names; their decorators register its components."""

import importlib
import importlib.util
import re
import sys
import traceback
from pathlib import Path

from nat.errors import NatError, RegistryError, describe_error, did_you_mean_path

_INSTEAD = {
    "retriever embedder memory object_store": "it is not part of this project; call it from the workflow",
    "middleware": "middleware is not part of this project; wrap the function in another one",
    "function_group per_user": "register each function, by register_function",
    "langchain_parser llama_index_parser adk_parser": "use nat.finetuning.utils.parsers.base_parser",
    "callback_handler": "calls are captured at the HTTP client; no callback handler is needed",
    "runner session": "use nat.utils.run_workflow for one input, and nat.eval.evaluate.EvaluationRun for a dataset",
}
"""What to use instead of names of the toolkit, by a part of the name."""
_FROM = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def replacement_for(error: BaseException) -> str:
    """What to use instead of a missing name of `nat`, with a leading colon; empty for other packages."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if found := _FROM.match(str(error)):
        missing = f"{found[2]}.{found[1]}"
    if missing is None or not missing.startswith("nat."):
        return ""
    snake = _CAMEL.sub("_", missing).lower()
    known = next((text for parts, text in _INSTEAD.items() if any(part in snake for part in parts.split())), None)
    return f": {known or 'this project has no such name; docs/from/nat.md lists what is here'}"


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
        raise RegistryError(
            f"the file {path} does not exist{did_you_mean_path(path)}", hint=f"paths start at {Path.cwd()}"
        )
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
    if isinstance(error, SyntaxError) and error.filename is not None:
        return RegistryError(f"{name} cannot be imported: {error.msg} ({error.filename}, line {error.lineno})")
    text = error.in_line if isinstance(error, NatError) else describe_error(error).partition("\n")[0]
    return RegistryError(f"{name} cannot be imported: {text}{replacement_for(error)} ({_place(error, name)})")


def _place(error: BaseException, name: str) -> str:
    """The innermost line of the file's own folder; of all code, if the module is elsewhere."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<")]
    folder = Path(name).parent.resolve()
    own = [each for each in frames if Path(each.filename).is_relative_to(folder) and name.endswith(".py")]
    place = (own or frames)[-1]
    return f"{place.filename}, line {place.lineno}"
