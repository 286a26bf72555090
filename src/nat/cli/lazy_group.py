"""A click group that imports a command only when it runs, so that `nat --help` is quick."""

from importlib import import_module
from importlib.metadata import entry_points

import click

PLUGIN_GROUP = "nat.cli"
"""Entry-point group for commands of other packages; each value is `module:click_command`."""


class LazyGroup(click.Group):
    """Commands are named by `module:attribute`, each with the line that the group's help shows."""

    def __init__(self, *, commands_by_target: dict[str, tuple[str, str]], **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type] # click's options, handed on as they are
        self._targets = commands_by_target

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*self._targets, *sorted(set(_plugin_targets()) - set(self._targets))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        target = self._targets[cmd_name][0] if cmd_name in self._targets else _plugin_targets().get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise click.ClickException(f"{target} is no click command, but {type(command).__name__}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from nat.errors import did_you_mean  # noqa: PLC0415 - keeps what `--help` imports to click alone

            raise click.UsageError(f"{error.message}{did_you_mean(args[0], self.list_commands(ctx))}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._targets[name][1] if name in self._targets else "") for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _plugin_targets() -> dict[str, str]:
    return {entry.name: entry.value for entry in entry_points(group=PLUGIN_GROUP)}
