"""`nat gateway serve`: the model of a configuration for agents that run elsewhere, each rollout recorded."""

import sys
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.checked_options import checked_options
from nat.cli.commands.config_options import config_file_option, override_option
from nat.cli.commands.serve import check_installed
from nat.gateway.options import KEY_VARIABLE, GatewayOptions
from nat.secrets import unredacted


@click.group("gateway")
def gateway_command() -> None:
    """A model server that records what agents elsewhere ask."""


@gateway_command.command("serve")
@config_file_option
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; one that others can reach needs a key of your own.",
)
@click.option("--allowed_hosts", help="Further names of this server, with commas between, such as that of a proxy.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8010,
    show_default=True,
    help="Port to listen on; 0 takes a free one, which is shown.",
)
@click.option("--llm", help="The LLM of the YAML that answers; the first one if left out.")
@click.option(
    "--api_key",
    envvar=KEY_VARIABLE,
    help=f"Key that opens and closes rollouts; made up and shown if left out. Better given as {KEY_VARIABLE}.",
)
@override_option
def serve_command(*, config_file: Path, override: tuple[tuple[str, str], ...], **given: object) -> None:
    """Serve the LLMs of a YAML to a service that is always up; each rollout is opened with POST /rollouts."""
    check_installed("nat gateway serve", "uvicorn", "httptools")
    from nat.gateway.serve import serve  # noqa: PLC0415 - the server comes with the `serve` extra only

    stated = {name: value for name, value in given.items() if value is not None}
    options = checked_options(GatewayOptions, stated, command="nat gateway serve")

    def greet(url: str, key: str) -> None:
        shown = f"the key {key}" if options.api_key is None else "your key"
        click.echo(f"Serving the LLMs of {config_file} at {url}")
        click.echo(f"Rollouts are opened with POST {url}/rollouts and {shown}", file=unredacted(sys.stdout))

    event_loop.run(serve(config_file, override, options, greet))
