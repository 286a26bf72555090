"""`nat backend serve`: the embedded backend as a server, outside of any run."""

import os
import sys
from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import click
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from nat.builder.child_processes import python_module
from nat.cli.commands.options import Command, checked_options
from nat.config.secrets import environment_secrets
from nat.errors import ConfigError
from nat.hub import local_model
from nat.wire.serving import KEY_VARIABLES, ServeOptions, environment_keys, handover, options_class, protocols

_PIPE_BYTES = 16_384
"""Bytes that can be written to a pipe on every system before anything is read."""


@click.group("backend")
def backend_command() -> None:
    """Run the embedded backend as a server."""


def _option(name: str, field: FieldInfo) -> dict[str, Any]:
    """The click option of a field; the class of the options checks bounds and sets defaults."""
    if field.annotation is bool:
        return {"is_flag": True, "default": None, "help": field.description}
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType] or [field.annotation]
    default = "" if field.is_required() or field.default is None else f"  [default: {field.default}]"
    required = name in ServeOptions.model_fields and field.is_required()
    kind: Any = kinds[0] if len(kinds) == 1 and isinstance(kinds[0], type) and kinds[0] is not SecretStr else str
    if get_origin(field.annotation) is Literal:
        kind = click.Choice(kinds)
    return {"type": kind, "required": required, "help": f"{field.description}{default}"}


def _serve_options(command: Command) -> Command:
    """One click option for each option of the backend, required ones first, and for those that each protocol adds."""
    own = dict(sorted(ServeOptions.model_fields.items(), key=lambda item: not item[1].is_required()))
    added = {name: field for protocol in protocols() for name, field in protocol.model_fields.items()}
    for name, field in reversed((own | added | ServeOptions.model_fields).items()):
        command = click.option(f"--{name}", **_option(name, field))(command)
    return command


@backend_command.command("serve")
@_serve_options
@click.option("--revision", help="Branch, tag or commit of a model of the Hub.")
def serve_command(*, revision: str | None, **given: object) -> None:
    """Serve and train a model on this machine."""
    options = checked({name: value for name, value in given.items() if value is not None}, os.environ)
    pipe = handover_pipe(with_folder(options, revision), os.environ)
    command = [*python_module("nat.backend"), str(pipe)]
    os.execve(sys.executable, command, backend_environment(os.environ))


def with_folder(options: ServeOptions, revision: str | None) -> ServeOptions:
    """The options with the folder of a model that is named, or given as a GGUF file.

    The backend's process gets no token of the Hub, so it loads folders only.

    Raises:
        ModelUnavailable: it cannot be had.

    """
    found = local_model(options.model, revision)
    if found.folder == options.model:
        return options
    name = options.served_model_name or options.model.name
    return options.model_copy(update={"model": found.folder, "served_model_name": name})


def checked(given: Mapping[str, object], environment: Mapping[str, str]) -> ServeOptions:
    """Validate the options, with the keys that the environment has; ConfigError with all findings."""
    try:
        model = options_class(given)
    except ValueError as error:
        raise ConfigError([str(error)], source="the options of `nat backend serve`") from error
    return checked_options(model, {**environment_keys(given, environment), **given}, command="nat backend serve")


def backend_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment without the keys: a process's initial environment can be read as long as it runs."""
    return {name: value for name, value in inherited.items() if name not in KEY_VARIABLES.values()}


def handover_pipe(options: ServeOptions, environment: Mapping[str, str]) -> int:
    """Write the options, and the secrets that the log must not show, to a pipe that survives `exec`.

    Raises:
        ConfigError: the options are too long for a pipe that nobody reads yet.

    """
    line = handover(options, environment_secrets(environment))
    if len(line) > _PIPE_BYTES:
        line = handover(options)
        click.echo("The environment's secrets are too long to be handed over: the log may show them.", err=True)
    if len(line) > _PIPE_BYTES:
        finding = f"the options have {len(line)} bytes; at most {_PIPE_BYTES} can be handed to the backend's process"
        raise ConfigError([finding], source="the options of `nat backend serve`")
    reads, writes = os.pipe()
    os.write(writes, line)
    os.close(writes)
    os.set_inheritable(reads, True)
    return reads
