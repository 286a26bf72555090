"""The commands of `nat` are a public interface: users have them in scripts."""

from collections.abc import Iterator

import click

from nat.cli.main import cli


def commands(group: click.Group, context: click.Context, name: str) -> Iterator[tuple[str, click.Command]]:
    """The group and all its subcommands, by the words that call them."""
    yield name, group
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        below = click.Context(command, context, word)
        if isinstance(command, click.Group):
            yield from commands(command, below, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def test_everything_is_explained():
    """Each command and each option has a help text."""
    found = dict(commands(cli, click.Context(cli), "nat"))
    assert {"nat finetune", "nat eval", "nat run", "nat serve", "nat validate", "nat info components"} <= set(found)
    assert [name for name, command in found.items() if not command.help] == []
    options = [(name, each) for name, command in found.items() for each in command.params]
    assert [(name, each.name) for name, each in options if isinstance(each, click.Option) and not each.help] == []
