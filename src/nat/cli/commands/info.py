"""`nat info`: the registered components with the keys of each."""

import json

import click
from pydantic_core import to_jsonable_python

from nat.cli.commands.options import json_option
from nat.data_models.component_ref import ComponentGroup
from nat.registry.catalog import current_catalog
from nat.registry.description import ComponentDescription, describe
from nat.registry.discovery import discover_components, failures

SECTIONS = {
    "llm_provider": ComponentGroup.LLMS,
    "function": ComponentGroup.FUNCTIONS,
    "evaluator": ComponentGroup.EVALUATORS,
    "dataset_loader": ComponentGroup.DATASETS,
    "ttc_strategy": ComponentGroup.TTC_STRATEGIES,
    "trajectory_builder": ComponentGroup.TRAJECTORY_BUILDERS,
    "trainer_adapter": ComponentGroup.TRAINER_ADAPTERS,
    "trainer": ComponentGroup.TRAINERS,
    "tracing": ComponentGroup.EVAL_CALLBACKS,
}
"""The toolkit's name of a component's type → our section."""


@click.group("info")
def info_command() -> None:
    """Show the registered components."""


@info_command.command("components")
@click.option(
    "-t",
    "--types",
    multiple=True,
    type=click.Choice(
        list(dict.fromkeys((*map(str, ComponentGroup), *SECTIONS))),
        case_sensitive=False,
    ),
    help="Only this section, or this type by the toolkit's name; may be repeated.",
)
@click.option("-q", "--query", default="", help="Only components with this text in their type, description or fields.")
@json_option
def components_command(*, types: tuple[str, ...], query: str, as_json: bool) -> None:
    """List the registered components.

    Each has its fields, with their defaults and descriptions.
    """
    discover_components()
    sections = {str(SECTIONS.get(name, name)) for name in types}
    found = [c for c in describe(current_catalog()) if (not types or c.section in sections) and matches(c, query)]
    if as_json:
        click.echo(json.dumps(to_jsonable_python(found, fallback=str), indent=2, ensure_ascii=False))
        return
    click.echo("\n".join(map(_text, found)) or "No component matches.")
    for failure in failures:
        click.echo(failure, err=True)


def matches(component: ComponentDescription, query: str) -> bool:
    """True if the component's type, section, description or fields contain the text; case is ignored."""
    words = [component.type, component.section, component.description]
    words += [text for field in component.fields for text in (field.name, field.description)]
    return query.casefold() in "\n".join(words).casefold()


def _text(component: ComponentDescription) -> str:
    head = click.style(f"{component.section}: {component.type}", bold=True)
    lines = [f"{head}  ({component.full_type}, {component.module})"]
    lines += [f"  {line}" if line else "" for line in component.description.splitlines()]
    for field in component.fields:
        default = f"default {json.dumps(to_jsonable_python(field.default, fallback=str))}"
        told = f" - {field.description}" if field.description else ""
        lines.append(f"    {field.name}: {field.type}, {'required' if field.required else default}{told}")
    return "\n".join([*lines, ""])
