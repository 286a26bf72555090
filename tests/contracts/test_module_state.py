"""Mutable state at module level is listed with its reason; all other state is passed as an argument."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "nat"
PAGE = ROOT / "docs" / "contribute" / "decisions" / "0013-module-level-state.md"

CONTAINERS = {"list", "dict", "set", "bytearray", "deque", "defaultdict", "Counter", "OrderedDict"}
STATEFUL = {"ContextVar", "local", "count", "cycle", "Lock", "RLock", "Event", "Condition", "Semaphore"}
WEAK = {"WeakSet", "WeakKeyDictionary", "WeakValueDictionary"}
MUTATING = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear"}
CACHES = {"cache", "lru_cache"}
IMMUTABLE_BASES = {"BaseModel", "TypedBaseModel", "NamedTuple", "Enum", "StrEnum", "IntEnum", "IntFlag", "TypedDict"}


def name_of(node: ast.AST) -> str:
    """The last part of a dotted name without subscripts: `Registry` for `registry.Registry[T]`."""
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def stateful_classes(trees: list[ast.Module]) -> set[str]:
    """Our own classes with mutable instances: no frozen dataclasses, models, records or enums."""
    found = {node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    frozen = {node.name for node in found if any("frozen=True" in ast.unparse(d) for d in node.decorator_list)}
    immutable = set(IMMUTABLE_BASES) | frozen
    while more := {n.name for n in found if {name_of(b) for b in n.bases} & immutable} - immutable:
        immutable |= more
    return {node.name for node in found} - immutable


def changed_names(tree: ast.Module) -> set[str]:
    """Names that the module changes in place or assigns through `global`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            names.update(node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
            names.add(node.func.value.id if isinstance(node.func.value, ast.Name) else "")
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(node.value.id if isinstance(node.value, ast.Name) else "")
    return names


def is_state(value: ast.expr, classes: set[str]) -> bool:
    """True for an empty container, which is filled later, and for a mutable object."""
    if isinstance(value, ast.List | ast.Set | ast.Dict):
        return not (value.keys if isinstance(value, ast.Dict) else value.elts)
    if not isinstance(value, ast.Call):
        return False
    name = name_of(value.func)
    return name in STATEFUL | WEAK | classes or (name in CONTAINERS and not value.args and not value.keywords)


def state_in(tree: ast.Module, classes: set[str]) -> Iterator[str]:
    """The names of a module that hold mutable state."""
    changed = changed_names(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and {name_of(d) for d in node.decorator_list} & CACHES:
            yield node.name
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for name in (target.id for target in targets if isinstance(target, ast.Name)):
            if is_state(node.value, classes) or name in changed:
                yield name


def found_state() -> set[str]:
    """Every module-level state of the source, as `nat.module.name`."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")}
    classes = stateful_classes(list(trees.values()))
    return {
        f"nat.{'.'.join(path.relative_to(SOURCE).with_suffix('').parts).removesuffix('.__init__')}.{name}"
        for path, tree in trees.items()
        for name in state_in(tree, classes)
    }


def listed_state() -> set[str]:
    """The first column of the page's table."""
    return set(re.findall(r"^\| `(nat\.[\w.]+)` \| \S.* \|$", PAGE.read_text("utf-8"), flags=re.MULTILINE))


def test_module_level_state_is_listed_with_its_reason():
    """Module-level state that the page does not list fails: pass an argument instead, or list it with its reason."""
    assert found_state() == listed_state()


@pytest.mark.parametrize(
    "source",
    [
        "seen = set()",
        "names: list[str] = []",
        'current = ContextVar("current", default=None)',
        "open_files = WeakSet()",
        "catalog = Catalog[int]()",
        'seen = {"a"}\n\ndef add(name):\n    seen.add(name)',
        'table = {"a": 1}\n\ndef put(name):\n    table[name] = 2',
        "seen = 0\n\ndef count():\n    global seen\n    seen += 1",
        "@functools.cache\ndef seen(): ...",
    ],
)
def test_state_is_recognised(source):
    """Empty containers, mutable objects, assigned globals and caches are state."""
    assert len(list(state_in(ast.parse(source), {"Catalog"}))) == 1


@pytest.mark.parametrize("source", ['TABLE = {"a": 1}', "NAMES = ()", "PATTERN = re.compile(r'a')", "limit = Limit(3)"])
def test_constants_are_no_state(source):
    """A table that nobody changes and an immutable object are not state."""
    assert list(state_in(ast.parse(source), {"Catalog"})) == []
