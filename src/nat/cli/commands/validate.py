"""`nat validate`: check a configuration without running anything."""

import json
from pathlib import Path

import click

from nat.cli.commands.options import config_file_option, json_option, override_options
from nat.cli.steps import SLOW_SECONDS, shown_steps
from nat.config.components import summary_rows
from nat.config.load import dump_resolved, load_config
from nat.config.sources import parse_yaml
from nat.errors import ConfigError
from nat.finetuning.plan import check_certain


@click.command("validate")
@config_file_option
@override_options
@click.option(
    "--show",
    is_flag=True,
    help="Print the configuration with what follows from it, such as the trainer.",
)
@json_option
def validate_command(*, config_file: Path, override: tuple[tuple[str, str], ...], show: bool, as_json: bool) -> None:
    """Check a configuration file: keys, types, values, and references between components."""
    try:
        with shown_steps() as steps:
            steps.begin("checking the configuration, and importing what it names", after=SLOW_SECONDS)
            config = load_config(config_file, override)
        warnings = check_certain(config, source=str(config_file))
    except ConfigError as error:
        if as_json:
            click.echo(json.dumps({"valid": False, "errors": error.findings}, ensure_ascii=False))
        else:
            click.echo("✗ Validation failed!")
            click.echo(str(error), err=True)
        raise click.exceptions.Exit(1) from None
    rows, shown = summary_rows(config), dump_resolved(config, only_given=True) if show else ""
    if as_json:
        components = [{"section": section, "name": name, "type": kind} for section, name, kind in rows]
        configuration = {"configuration": parse_yaml(shown)} if show else {}
        found = {"valid": True, "warnings": warnings, "components": components, **configuration}
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    for warning in warnings:
        click.echo(warning, err=True)
    if show:
        click.echo(shown, nl=False)
        return
    click.echo("✓ Configuration file is valid!")
    for section, name, kind in rows:
        click.echo(f"  {section:<20} {name:<24} {kind}")
