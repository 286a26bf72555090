"""Options that every command with a configuration shares."""

from pathlib import Path

import click

config_file_option = click.option(
    "--config_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The YAML that describes the workflow.",
)

override_option = click.option(
    "-o",
    "--override",
    type=(str, str),
    multiple=True,
    metavar="KEY VALUE",
    help="Set a dotted key of the YAML, for example `-o llms.judge.temperature 0`; may be repeated.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
