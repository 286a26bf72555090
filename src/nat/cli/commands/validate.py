"""`nat validate`: check a configuration, and play one example, before a model is loaded."""

import json
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.options import config_file_option, json_option, override_options
from nat.cli.steps import SLOW_SECONDS, shown_steps
from nat.config.load import dump_resolved, load_config
from nat.config.sources import parse_yaml
from nat.errors import ConfigError, NatError
from nat.eval.rehearsal import REHEARSING
from nat.finetuning.plan import check_certain, tried
from nat.reports.text import printable


@click.command("validate")
@config_file_option
@override_options
@click.option(
    "--show",
    is_flag=True,
    help="Print the configuration with what follows from it, such as the trainer; read no data and play nothing.",
)
@json_option
def validate_command(*, config_file: Path, override: tuple[tuple[str, str], ...], show: bool, as_json: bool) -> None:
    """Check a configuration file and the data and code that it names, and play one example.

    Keys, types, values and references are checked, and the rows are read; then the agent answers the first one, with a
    script as the model, and the evaluators score the answer. No model is loaded.
    """
    notes: list[str] = []
    try:
        with shown_steps() as steps:
            steps.begin("checking the configuration, and importing what it names", after=SLOW_SECONDS)
            config = load_config(config_file, override)
            notes = check_certain(config, source=str(config_file))
            if not show:
                steps.begin(REHEARSING, after=SLOW_SECONDS)
                notes += event_loop.run(tried(config), keep_stdout=True)
    except NatError as error:
        if as_json:
            errors = error.findings if isinstance(error, ConfigError) else [error.in_line]
            click.echo(json.dumps({"valid": False, "errors": errors}, ensure_ascii=False))
        else:
            click.echo("✗ Validation failed!")
            click.echo(printable(str(error)), err=True)
        raise click.exceptions.Exit(1) from None
    shown = dump_resolved(config, only_given=True) if show else ""
    if as_json:
        configuration = {"configuration": parse_yaml(shown)} if show else {}
        click.echo(json.dumps({"valid": True, "warnings": notes, **configuration}, ensure_ascii=False))
    elif show:
        click.echo(shown, nl=False)
    else:
        click.echo("✓ Configuration file is valid!")
        for note in notes:
            click.echo(printable(f"Warning: {note}"), err=True)
