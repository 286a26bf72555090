"""Small changes to Python source, one at a time. Pure.

It leaves annotations, texts, asserts (which help the type checker), raised exceptions and log calls unchanged.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_PAIRS = [("min", "max"), ("any", "all"), ("floor", "ceil"), ("minimum", "maximum")]
_NAMES = dict(_PAIRS) | {second: first for first, second in _PAIRS}
_SKIPPED = (ast.JoinedStr, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom)
_SKIPPED_FIELDS = {"annotation", "returns", "decorator_list"}
_AROUND = 60
_LOGGED = ("logger", "warnings")


@dataclass(frozen=True)
class Mutant:
    """A module with one change."""

    line: int
    """Line number in the file."""
    before: str
    """The changed line, as `ast.unparse` writes it, around the change."""
    after: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """Every change of the source, in the order of its lines."""
    whole = ast.unparse(ast.parse(source))
    for number in range(len(list(_sites(ast.parse(source))))):
        tree = ast.parse(source)
        node, change = list(_sites(tree))[number]
        change()
        changed = ast.unparse(ast.fix_missing_locations(tree))
        pairs = zip(whole.splitlines(), changed.splitlines(), strict=True)
        before, after = next((old.strip(), new.strip()) for old, new in pairs if old != new)
        yield Mutant(node.lineno, *_excerpts(before, after), changed)


def _excerpts(before: str, after: str) -> tuple[str, str]:
    """The different parts of two long lines, with some context."""
    differ = (place for place, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    same = next(differ, len(before))
    begin, end = max(0, same - _AROUND), same + _AROUND
    return before[begin:end], after[begin:end]


Site = tuple[ast.expr | ast.stmt, Callable[[], None]]
"""A node, and the function that changes it in place."""


def _sites(tree: ast.AST) -> Iterator[Site]:
    for node in _code(tree):
        yield from _operators(node)
        yield from _names_and_numbers(node)
        yield from _flow(node)


def _operators(node: ast.AST) -> Iterator[Site]:
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                yield node, _setter(node, "ops", [*ops[:place], _SWAPS[type(op)](), *ops[place + 1 :]])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) if type(op) in _SWAPS:
            yield node, _setter(node, "op", _SWAPS[type(op)]())
        case ast.UnaryOp(op=ast.USub()):
            yield node, _setter(node, "op", ast.UAdd())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, _setter(node, "operand", ast.UnaryOp(ast.Not(), operand))


def _names_and_numbers(node: ast.AST) -> Iterator[Site]:
    match node:
        case ast.Constant(value=bool(value)):
            yield node, _setter(node, "value", not value)
        case ast.Constant(value=int(value) | float(value)):
            yield node, _setter(node, "value", value + 1)
        case ast.Name(id=name) if name in _NAMES:
            yield node, _setter(node, "id", _NAMES[name])
        case ast.Attribute(attr=name) if name in _NAMES:
            yield node, _setter(node, "attr", _NAMES[name])


def _flow(node: ast.AST) -> Iterator[Site]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) if _plain(test):
            yield test, _setter(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[test]) if _plain(test):
            yield test, _setter(node, "ifs", [ast.UnaryOp(ast.Not(), test)])
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield node, _setter(node, "value", ast.Constant(None))
        case ast.Continue() | ast.Break():
            yield node, _setter(node, "__class__", ast.Pass)


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    yield tree
    for name, value in ast.iter_fields(tree):
        if name in _SKIPPED_FIELDS:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, _SKIPPED) and not _is_log_or_docstring(child):
                yield from _code(child)


def _is_log_or_docstring(node: ast.AST) -> bool:
    """True if the node is a log call or a docstring."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in _LOGGED
        case ast.Expr(value=ast.Constant()):
            return True
    return False


def _plain(test: ast.expr) -> bool:
    """True if no other change negates this condition."""
    return isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr)


def _setter(node: ast.AST, field: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, field, value)
