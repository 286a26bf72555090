"""The `nat` command: options that all commands share, and errors turned into text and exit codes."""

import logging
import signal
import sys
from importlib.metadata import version
from io import TextIOWrapper

import click

from nat.cli.lazy_group import LazyGroup

DISTRIBUTION = "nat-finetuning-harness"
LOG_FORMAT = "%(asctime)s - %(levelname)-8s - %(name)s:%(lineno)d - %(message)s"
EXIT_FAILED = 1
EXIT_SIGNAL = 128
"""Plus the number of the signal that ended the command, as shells have it."""
_LAST_SECONDS = 5.0
"""How long threads that nobody waits for may hold up the exit of an interrupted command."""
_OVERRIDE = {"-o", "--override"}

_COMMANDS = {
    "finetune": ("nat.cli.commands.finetune:finetune_command", "Train the model inside a workflow."),
    "export": ("nat.cli.commands.export:export_command", "Make a plain model of a run's checkpoint."),
    "eval": ("nat.cli.commands.eval:eval_command", "Run a workflow on a dataset and score it."),
    "run": ("nat.cli.commands.run:run_command", "Run a workflow on one input."),
    "serve": ("nat.cli.commands.serve:serve_command", "Serve a workflow over HTTP."),
    "gateway": ("nat.cli.commands.gateway:gateway_command", "A model server that records what agents elsewhere ask."),
    "validate": ("nat.cli.commands.validate:validate_command", "Check a configuration file."),
    "info": ("nat.cli.commands.info:info_command", "Show the registered components and their fields."),
    "backend": ("nat.cli.commands.backend:backend_command", "The embedded backend as a server of its own."),
}


@click.group(cls=LazyGroup, commands_by_target=_COMMANDS, context_settings={"auto_envvar_prefix": "NAT"})
@click.version_option(version(DISTRIBUTION), prog_name="nat")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False),
    default="info",
    show_default=True,
    help="What is logged to stderr.",
)
def cli(log_level: str) -> None:
    """Finetune the model inside your agent, with the workflow that runs in production."""
    logging.basicConfig(level=log_level.upper(), format=LOG_FORMAT, stream=sys.stderr, force=True)
    for library in ("httpx", "httpx2", "httpcore", "httpcore2", "openai", "matplotlib"):
        logging.getLogger(library).setLevel(logging.WARNING)


def run_cli() -> None:
    """Run the command line; a `NatError` becomes its text and exit code 1, a signal exit code 128 and its number."""
    from nat.secrets import keep_files_private, redact_output  # noqa: PLC0415 - as below

    keep_files_private()
    _print_anything()
    redact_output()
    code = exit_code(sys.argv[1:])
    if code > EXIT_SIGNAL:
        from nat.cli.ending import exit_within  # noqa: PLC0415 - keeps what `--help` imports to click alone

        exit_within(_LAST_SECONDS, code)
    sys.exit(code)


def _print_anything() -> None:
    """What the output's encoding has no bytes for is printed as its escape, and ends no command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def exit_code(arguments: list[str]) -> int:
    """Run the command line on `arguments` and give the exit code."""
    from nat.errors import NatError, StorageError  # noqa: PLC0415 - keeps what `--help` imports to click alone
    from nat.registry.discovery import check_environment  # noqa: PLC0415 - likewise

    try:
        check_environment()
        result = cli.main(args=arguments, prog_name="nat", standalone_mode=False)
    except NatError as error:
        click.secho(f"Error: {error}", fg="red", err=True)
        return EXIT_FAILED
    except click.ClickException as error:
        _advised(error).show()
        return error.exit_code
    except OSError as error:
        from nat.files import storage_failure  # noqa: PLC0415 - likewise

        failure = storage_failure(error)
        if failure is None:
            raise
        click.secho(f"Error: {StorageError(failure.message, hint=failure.hint)}", fg="red", err=True)
        return EXIT_FAILED
    except (click.Abort, KeyboardInterrupt) as error:
        return _interrupted(error)
    return result if isinstance(result, int) else 0


def _advised(error: click.ClickException) -> click.ClickException:
    """The same error; where somebody wanted to set a key of the configuration, it says how."""
    if isinstance(error, click.BadOptionUsage) and error.option_name in _OVERRIDE:
        advice = "Write the key, a blank, and the value: `-o finetuning.num_epochs 3`."
        return click.BadOptionUsage(error.option_name, f"{error.message} {advice}", error.ctx)
    if isinstance(error, click.NoSuchOption) and error.ctx is not None and _takes_overrides(error.ctx.command):
        advice = "A key of the configuration is set by `-o KEY VALUE`, as in `-o finetuning.num_epochs 3`."
        return click.NoSuchOption(error.option_name, f"{error.format_message()} {advice}", ctx=error.ctx)
    return error


def _takes_overrides(command: click.Command) -> bool:
    return any(_OVERRIDE.intersection(option.opts) for option in command.params)


def _interrupted(error: BaseException) -> int:
    """Say which signal it was, and give its exit code."""
    from nat.cli.ending import Interrupted  # noqa: PLC0415 - keeps what `--help` imports to click alone

    cause = error.__cause__  # click makes an Abort of every KeyboardInterrupt
    number = cause.number if isinstance(cause, Interrupted) else signal.SIGINT
    by = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    click.secho(f"Interrupted{by}.", fg="yellow", err=True)
    return EXIT_SIGNAL + number
