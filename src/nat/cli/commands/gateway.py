"""`nat gateway serve`: serve the models of a configuration to agents in other processes and record their calls."""

import sys
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.options import address_options, checked_options, config_file_option, override_options
from nat.cli.commands.serve import check_installed
from nat.gateway.options import KEY_VARIABLE, GatewayOptions
from nat.secrets import unredacted


@click.group("gateway")
def gateway_command() -> None:
    """Serve models to agents in other processes; record their calls."""


@gateway_command.command("serve")
@config_file_option
@address_options(host="127.0.0.1", port=8010)
@click.option("--llm", help="The LLM of the YAML that answers; default: the first.")
@click.option(
    "--api_key",
    envvar=KEY_VARIABLE,
    help=f"Key for opening and closing rollouts; default: generated and printed. Better set as {KEY_VARIABLE}.",
)
@override_options
def serve_command(*, config_file: Path, override: tuple[tuple[str, str], ...], **given: object) -> None:
    """Serve the LLMs of a YAML to agents in other processes.

    POST /rollouts opens a rollout.
    """
    check_installed("nat gateway serve", "uvicorn")
    from nat.gateway.serve import serve

    stated = {name: value for name, value in given.items() if value is not None}
    options = checked_options(GatewayOptions, stated, command="nat gateway serve")

    def greet(url: str, key: str) -> None:
        key_text = f"the key {key}" if options.api_key is None else "your key"
        click.echo(f"Serving the LLMs of {config_file} at {url}")
        click.echo(f"Open a rollout with POST {url}/rollouts and {key_text}", file=unredacted(sys.stdout))

    event_loop.run(serve(config_file, override, options, greet))
