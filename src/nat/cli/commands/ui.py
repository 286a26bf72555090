"""`nat ui`: look at runs in a browser."""

import sys
from pathlib import Path

import click

from nat.cli import event_loop
from nat.cli.commands.options import UserPathOption
from nat.cli.commands.serve import check_installed
from nat.secrets import unredacted

_NEEDED = ("jinja2", "starlette", "uvicorn")


@click.command("ui")
@click.argument(
    "folder", metavar="[DIR]", required=False, type=UserPathOption(exists=True, file_okay=False, path_type=Path)
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port; 0 takes a free one.")
def ui_command(folder: Path | None, port: int) -> None:
    """Look at the runs below DIR in a browser, while they train and afterwards.

    Without DIR, those of the current folder, or else all that you started. The pages are for this machine and for
    whoever has the link; they change no run.
    """
    check_installed("nat ui", *_NEEDED, extra="ui")
    from nat.dashboard.serve import serve

    event_loop.run(serve(folder, port, _greet))


def _greet(link: str) -> None:
    click.echo(f"Open {link}\nCtrl-C ends it.", file=unredacted(sys.stdout))
