"""`nat serve`: serve a workflow over HTTP."""

from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.options import address_options, checked_options, config_file_option, override_options
from nat.errors import ConfigError
from nat.front_end.options import FrontEndOptions
from nat.wire.extras import install_hint, missing_packages
from nat.wire.rollout import KEY_VARIABLE

_NEEDED = ("fastapi", "uvicorn")


@click.command("serve")
@config_file_option
@address_options(host="localhost", port=8000)
@click.option(
    "--api_key", envvar=KEY_VARIABLE, help=f"Key that requests need as a bearer token; better set as {KEY_VARIABLE}."
)
@override_options
def serve_command(*, config_file: Path, override: tuple[tuple[str, str], ...], **given: object) -> None:
    """Serve a workflow over HTTP: /generate, /chat, /v1/chat/completions. API reference: /docs."""
    check_installed("nat serve", *_NEEDED)
    from nat.front_end.serve import serve

    stated = {name: value for name, value in given.items() if value is not None}
    options = checked_options(FrontEndOptions, stated, command="nat serve")
    then = "Next: `nat eval --endpoint {0}`, or `nat finetune --endpoint {0}`."
    greeting = f"Serving {config_file} at {{0}} (routes: {{0}}/docs)\n{then}"
    event_loop.run(serve(config_file, override, options, lambda url: click.echo(greeting.format(url))))


def check_installed(command: str, *needed: str, extra: str = "serve") -> None:
    """Raise ConfigError if a package that the command needs is not installed; `extra` brings it."""
    if missing := missing_packages(needed):
        raise ConfigError(
            [f"{', '.join(missing)}: not installed, but `{command}` needs it"],
            source="the installation",
            hint=install_hint(extra),
        )
