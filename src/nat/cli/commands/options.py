"""Options that several commands share, and the checks of those that a pydantic model describes."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from pydantic import BaseModel, ValidationError

from nat.config.secrets import secrets_in
from nat.config.sources import APPEND
from nat.errors import ConfigError, findings_of
from nat.eval.result_path import WHOLE, compile_path
from nat.files import expanded
from nat.secrets import known_secrets


class UserPathOption(click.Path):
    """A path in which `~` is the user's home folder: shells do not expand it in `--option=~/file`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(expanded(value), param, ctx)


def dotted_key(text: str) -> str:
    """Refuse `KEY=VALUE` in one word, which would make the next option the value."""
    key, equals, value = text.partition("=")
    if equals:
        raise click.BadParameter(f"write a space instead of '=': `-o {key} {value or '…'}`")
    return key


def server_url(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """Refuse an address without its scheme."""
    if text is not None and not re.match("https?://.", text):
        raise click.BadParameter(f"expected a URL that begins with http:// or https://, got {text!r}")
    return text


def json_path(_context: click.Context, _option: click.Parameter, text: str) -> str:
    """Refuse a text that is no JSON path."""
    try:
        if text != WHOLE:
            compile_path(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return text


_config_file = partial(click.option, "--config_file", type=UserPathOption(exists=True, dir_okay=False, path_type=Path))
config_file_option = _config_file(required=True, help="The YAML that describes the workflow.")
optional_config_file = _config_file(help="The YAML that describes the workflow; a run that goes on knows its own.")

_dataset_option = click.option(
    "--dataset", help="A file that replaces the configured dataset; its suffix decides the format."
)

_result_json_path_option = click.option(
    "--result_json_path",
    default="$",
    show_default=True,
    callback=json_path,
    help="JSON path of the answer in the workflow's output.",
)

override_option = click.option(
    "-o",
    "--override",
    type=(dotted_key, str),
    multiple=True,
    metavar="KEY VALUE",
    help="Set a dotted key of the YAML, for example `-o llms.judge.temperature 0`; may be repeated.",
)
import_option = click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="FILE_OR_MODULE",
    help="Import your Python file or module, as `imports:` in the YAML does; may be repeated.",
)

runs_root_option = click.option(
    "--output_dir",
    type=UserPathOption(path_type=Path),
    help="Look for runs only here, up to three folders down.  [default: .tmp, and all runs that you started; `latest` "
    "is the newest of those that were started in the current folder or lie in it]",
)

_endpoint_option = click.option(
    "--endpoint",
    metavar="URL",
    callback=server_url,
    help="Run the workflow that `nat serve` serves at this URL, with the key in NAT_SERVE_API_KEY; build none here.",
)

_endpoint_timeout_option = click.option(
    "--endpoint_timeout",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Seconds that a rollout at --endpoint may take.",
)

trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Run the YAML and the code that the run's folder names, although you have not started the run here.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


Command = Callable[..., None]
Options = TypeVar("Options", bound=BaseModel)


def override_options(command: Command) -> Command:
    """`--override` and `--import`, which appends to the YAML's `imports`; the command gets both as `override`."""

    @wraps(command)
    def merged(*arguments: object, imports: Sequence[str], **options: Any) -> None:
        if imports:
            context = click.get_current_context()
            pairs = (*options["override"], *((f"imports.{APPEND}", json.dumps(name)) for name in imports))
            options["override"] = context.params["override"] = pairs
            context.set_parameter_source("override", ParameterSource.COMMANDLINE)
        command(*arguments, **options)

    return override_option(import_option(merged))


def playing_options(command: Command, *, config_file: Callable[[Command], Command] = config_file_option) -> Command:
    """The options of every command that plays a dataset."""
    options = (config_file, _dataset_option, _endpoint_option, _endpoint_timeout_option, override_options, json_option)
    for option in reversed(options):
        command = option(command)
    return command


def rollout_options(command: Command, *, config_file: Callable[[Command], Command] = config_file_option) -> Command:
    """The same, and where the answer stands in the workflow's output."""
    return playing_options(_result_json_path_option(command), config_file=config_file)


def address_options(*, host: str, port: int) -> Callable[[Command], Command]:
    """The options of a server's address, with its defaults."""
    where = "Address to listen on; any but a loopback address needs --api_key."
    names = "Further host names of this server, such as a proxy's; separated by commas."
    number = "Port to listen on; 0 picks a free one and prints it."

    def decorate(command: Command) -> Command:
        command = click.option("--port", type=click.IntRange(0, 65535), default=port, show_default=True, help=number)(
            command
        )
        command = click.option("--allowed_hosts", help=names)(command)
        return click.option("--host", default=host, show_default=True, help=where)(command)

    return decorate


def checked_options(model: type[Options], given: Mapping[str, object], *, command: str) -> Options:
    """Validate the options and remember their secrets; ConfigError with all findings."""
    try:
        options = model.model_validate(given)
    except ValidationError as error:
        raise ConfigError(list(map(str, findings_of(error))), source=f"the options of `{command}`") from error
    known_secrets.remember(secrets_in(options.model_dump()))
    return options
