"""The `nat` command: options that all commands share, and errors turned into text and exit codes.

A command's module is imported when the command runs, so that `nat --help` is quick.
"""

import logging
import signal
import sys
from importlib import import_module
from importlib.metadata import entry_points, version
from io import TextIOWrapper

import click

from nat.cli import console_log

DISTRIBUTION = "nat-finetuning-harness"
EXIT_FAILED = 1
EXIT_SIGNAL = 128
"""Plus the number of the signal that ended the command, as in shells."""
EXIT_GOES_ON = 75
"""EX_TEMPFAIL: SIGTERM ended a run, which goes on with `--resume`."""
_LAST_SECONDS = 5.0
"""Time for running threads to delay the exit of an interrupted command."""
_OVERRIDE = {"-o", "--override"}

_COMMANDS = {
    "init": ("nat.cli.commands.init:init_command", "Write a project that trains as it stands."),
    "fits": ("nat.cli.commands.fits:fits_command", "Tell whether a model can be trained, without its weights."),
    "finetune": ("nat.cli.commands.finetune:finetune_command", "Train the model inside a workflow."),
    "probe": ("nat.cli.commands.probe:probe_command", "Tell whether training has a signal; train nothing."),
    "diagnose": ("nat.cli.commands.diagnose:diagnose_command", "Say why a run's reward is flat, and what to change."),
    "runs": ("nat.cli.commands.runs:runs_command", "Look at runs, compare them, export their models."),
    "ui": ("nat.cli.commands.ui:ui_command", "Look at runs in a browser."),
    "eval": ("nat.cli.commands.eval:eval_command", "Run a workflow on a dataset and score it."),
    "run": ("nat.cli.commands.run:run_command", "Run a workflow on one input."),
    "serve": ("nat.cli.commands.serve:serve_command", "Serve a workflow over HTTP."),
    "gateway": (
        "nat.cli.commands.gateway:gateway_command",
        "Serve models to agents in other processes; record their calls.",
    ),
    "validate": ("nat.cli.commands.validate:validate_command", "Check a configuration file, and play one example."),
    "info": ("nat.cli.commands.info:info_command", "Show the registered components."),
    "backend": ("nat.cli.commands.backend:backend_command", "Run the embedded backend as a server."),
}
PLUGIN_GROUP = "nat.cli"
"""Entry-point group for commands of other packages; each value is `module:click_command`."""


class LazyGroup(click.Group):
    """Imports a command, `module:attribute`, only when it runs; the group's help shows a given line for it."""

    def __init__(self, *, commands_by_target: dict[str, tuple[str, str]], **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type] # click's options, passed through
        self._targets = commands_by_target

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._targets, *sorted(set(_plugin_targets()) - set(self._targets))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self._targets[cmd_name][0] if cmd_name in self._targets else _plugin_targets().get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise click.ClickException(f"{target} is not a click command but {type(command).__name__}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from nat.errors import did_you_mean

            raise click.UsageError(f"{error.message}{did_you_mean(args[0], self.list_commands(ctx))}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._targets[name][1] if name in self._targets else "") for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _plugin_targets() -> dict[str, str]:
    return {entry.name: entry.value for entry in entry_points(group=PLUGIN_GROUP)}


@click.group(cls=LazyGroup, commands_by_target=_COMMANDS)
@click.version_option(version(DISTRIBUTION), prog_name="nat")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False),
    default="warning",
    show_default=True,
    help="Lowest level of log lines on stderr; a run's run.log has all from info on.",
)
def cli(log_level: str) -> None:
    """Finetune the model inside your agent, with the workflow that runs in production."""
    console_log.configure(log_level)
    for library in ("httpx", "httpx2", "httpcore", "httpcore2", "openai", "matplotlib"):
        logging.getLogger(library).setLevel(logging.WARNING)


def run_cli() -> None:
    """Run the command line; a `NatError` becomes text and exit code 1, a signal exit code 128 plus its number or 75."""
    from nat.secrets import keep_files_private, redact_output

    keep_files_private()
    for stream in (sys.stdout, sys.stderr):  # each line at once, also into a pipe, in order with the log's lines
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
    redact_output()
    code = exit_code(sys.argv[1:])
    if code > EXIT_SIGNAL or code == EXIT_GOES_ON:
        from nat.cli.event_loop import exit_within

        exit_within(1.0 if code == EXIT_GOES_ON else _LAST_SECONDS, code)  # of a grace little is left
    sys.exit(code)


def exit_code(arguments: list[str]) -> int:
    """Run the command line on `arguments` and give the exit code."""
    from nat.errors import NatError, StorageError

    try:
        result = cli.main(args=arguments, prog_name="nat", standalone_mode=False)
    except NatError as error:
        from nat.reports.text import printable

        click.secho(printable(f"Error: {error}"), fg="red", err=True)
        return EXIT_FAILED
    except click.ClickException as error:
        _with_advice(error).show()
        return error.exit_code
    except OSError as error:
        from nat.files import storage_failure

        failure = storage_failure(error)
        if failure is None:
            raise
        click.secho(f"Error: {StorageError(failure.message, hint=failure.hint)}", fg="red", err=True)
        return EXIT_FAILED
    except (click.Abort, KeyboardInterrupt) as error:
        return _interrupted(error)
    return result if isinstance(result, int) else 0


def _with_advice(error: click.ClickException) -> click.ClickException:
    """The same error, with advice if the user tried to set a key of the configuration."""
    if isinstance(error, click.BadOptionUsage) and error.option_name in _OVERRIDE:
        advice = "Separate key and value by a space: `-o finetuning.num_epochs 3`."
        return click.BadOptionUsage(error.option_name, f"{error.message} {advice}", error.ctx)
    known = error.ctx.command.params if isinstance(error, click.NoSuchOption) and error.ctx is not None else ()
    if isinstance(error, click.NoSuchOption) and any(_OVERRIDE.intersection(option.opts) for option in known):
        advice = "To set a key of the configuration, use `-o KEY VALUE`, as in `-o finetuning.num_epochs 3`."
        return click.NoSuchOption(error.option_name, f"{error.format_message()} {advice}", ctx=error.ctx)
    return error


def _interrupted(error: BaseException) -> int:
    """Print which signal it was and return the exit code."""
    from nat.cli.event_loop import Interrupted

    cause = error.__cause__  # click raises Abort for every KeyboardInterrupt
    signaled = cause if isinstance(cause, Interrupted) else None
    number = signal.SIGINT if signaled is None else signaled.number
    by = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    click.secho(f"Interrupted{by}.", fg="yellow", err=True)
    return EXIT_SIGNAL + number if signaled is None else signaled.exit_code
