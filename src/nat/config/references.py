"""Check that every name points to something; pure."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from nat.config.components import NAMED_SECTIONS, value_at
from nat.config.files import Tree
from nat.config.findings import Findings, Path
from nat.data_models.component_ref import ComponentGroup, ComponentRef
from nat.registry.suggest import did_you_mean, one_of


def check_references(raw: Tree, parsed: Tree, findings: Findings) -> None:
    """Find references to names that no section holds; `raw` still has the components that did not parse."""
    names = {group: _names(value_at(raw, path)) for path, group in NAMED_SECTIONS.items()}
    for path, ref in _references(parsed, ()):
        known = names.get(ref.component_group)
        if known is None:
            findings.add(path, f"'{ref}' names one of {ref.component_group}, which are not part of this project")
        elif ref not in known:
            findings.add(
                path,
                f"'{ref}' is not under {ref.component_group}.{did_you_mean(ref, known)} There: {one_of(known)}.",
            )
    _check_cycles(parsed, findings)


def _names(section: Any) -> set[str]:
    return {str(name) for name in section} if isinstance(section, dict) else set()


def references_of(config: BaseModel) -> list[ComponentRef]:
    """Every reference inside one component's config."""
    return [ref for _, ref in _references(config, ())]


def _references(value: Any, path: Path) -> Iterator[tuple[Path, ComponentRef]]:
    if isinstance(value, ComponentRef):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _references(getattr(value, name), (*path, name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _references(item, (*path, key))
    elif isinstance(value, (list, tuple, set)):
        for index, item in enumerate(value):
            yield from _references(item, (*path, index))


def _check_cycles(parsed: Tree, findings: Findings) -> None:
    """Find functions that call each other in a circle."""
    functions = {n: f for n, f in (parsed.get("functions") or {}).items() if isinstance(f, BaseModel)}
    edges = {
        n: [str(r) for r in references_of(f) if r.component_group is ComponentGroup.FUNCTIONS]
        for n, f in functions.items()
    }
    done: set[str] = set()

    def visit(name: str, chain: tuple[str, ...]) -> None:
        if name in chain:
            circle = " → ".join((*chain[chain.index(name) :], name))
            findings.add(("functions", name), f"functions refer to each other in a circle: {circle}")
        elif name not in done:
            for target in edges.get(name, []):
                visit(target, (*chain, name))
            done.add(name)

    for name in edges:
        visit(name, ())
