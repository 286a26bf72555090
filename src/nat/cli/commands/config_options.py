"""Options that every command with a configuration shares."""

from pathlib import Path

import click


def dotted_key(text: str) -> str:
    """The key of an override; `KEY=VALUE` as one word would take the next option for the value."""
    key, equals, value = text.partition("=")
    if equals:
        raise click.BadParameter(f"write a blank for the '=': `-o {key} {value or '…'}`")
    return key


config_file_option = click.option(
    "--config_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The YAML that describes the workflow.",
)

override_option = click.option(
    "-o",
    "--override",
    type=(dotted_key, str),
    multiple=True,
    metavar="KEY VALUE",
    help="Set a dotted key of the YAML, for example `-o llms.judge.temperature 0`; may be repeated.",
)

endpoint_option = click.option(
    "--endpoint",
    metavar="URL",
    help="Play the workflow that `nat serve` serves there, and build none here; its key is in NAT_SERVE_API_KEY.",
)

endpoint_timeout_option = click.option(
    "--endpoint_timeout",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Seconds that one rollout at --endpoint may take.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
