"""`nat fits`: whether a model can be trained here, before its weights are downloaded or read."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click

from nat.builder.child_processes import run_module
from nat.cli import event_loop
from nat.cli.commands.options import json_option
from nat.cli.steps import shown_steps
from nat.errors import ModelUnavailable
from nat.files import expanded
from nat.hub import local_model
from nat.reports.text import labelled, printable
from nat.sizing.forecast import FitReport
from nat.sizing.memory import bytes_text, memory_rows
from nat.wire.extras import install_hint, missing_packages
from nat.wire.serving import LOCAL_PACKAGES

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*GB", re.IGNORECASE)


def gpu_bytes(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """The bytes of a size such as `24GB`."""
    if text is None:
        return None
    if (found := _SIZE.fullmatch(text.strip())) is None or not 0 < float(found[1]) < 10**6:
        raise click.BadParameter(f"expected the memory of a GPU, such as 24GB, got {text!r}")
    return int(float(found[1]) * 1e9)


@click.command("fits")
@click.argument("model")
@click.option("--revision", help="Branch, tag or commit of a model of the Hub.")
@click.option(
    "--gpu",
    metavar="SIZE",
    callback=gpu_bytes,
    help="Judge for a GPU with so much memory, such as 24GB, in place of this machine.",
)
@click.option(
    "--max_seq_length",
    type=click.IntRange(min=8),
    help="Most tokens of a conversation; default: the model's own limit.",
)
@json_option
def fits_command(
    *, model: str, revision: str | None, gpu: int | None, max_seq_length: int | None, as_json: bool
) -> None:
    """Tell whether MODEL, a folder, a .gguf file or a name on the Hub, can be trained; weights are not downloaded.

    It prints the model's family, how its answers are read, and the memory of each way to train. The exit code is 1 if
    it is not supported, or no way fits.
    """
    if missing := missing_packages(LOCAL_PACKAGES):
        said = f"models are judged with packages that are not installed: {', '.join(missing)}"
        raise ModelUnavailable(said, hint=install_hint("local"))
    with shown_steps() as steps:
        convert = "converting the file, once, and " if model.endswith(".gguf") else ""
        steps.begin(f"{convert}reading the model's configuration, tokenizer and chat template")
        found = local_model(expanded(Path(model)), revision, weights=False)
        named = {"folder": str(found.folder), "name": model, "revision": found.revision}
        given = json.dumps({**named, "gpu": gpu, "max_seq_length": max_seq_length})
        lines: list[str] = []
        code, said = event_loop.run(run_module("nat.backend.fits", given, on_line=lines.append))  # it imports torch
    if code or not lines:
        raise ModelUnavailable(
            f"{model} cannot be judged (exit code {code}): {said[-2000:]}", hint="please report this, with the model"
        )
    report = FitReport.model_validate_json(lines[-1])
    click.echo(report.model_dump_json() if as_json else fits_page(report))
    if report.problems:
        raise click.exceptions.Exit(1)


def fits_page(report: FitReport) -> str:
    """The report, and the verdict."""
    verdict = "; ".join(report.problems) or "it is supported, and fits"
    mark = "\N{BALLOT X}" if report.problems else "\N{CHECK MARK}"
    return printable("\n\n".join([labelled(_rows(report)), f"{mark} {report.model}: {verdict}"]))


def _rows(report: FitReport) -> Iterator[tuple[str, str]]:
    if report.family is not None:
        commit = f", commit {report.revision}" if report.revision else ""
        size = f"{report.num_parameters / 1e6:,.3g} million weights{commit}; context {report.context:,} tokens"
        yield "Family", f"{report.family} ({report.architecture}), {size}"
    if report.format is not None:
        calls = "tool calls are read" if report.warning is None else f"for agents without tools only: {report.warning}"
        thinking = "" if report.reads_thinking else "not "
        yield "Words", f"format: {report.format}; {calls}; thinking is {thinking}told apart"
    yield from (("", f"misread: {kind}: {how}") for kind, how in report.misread.items())
    if report.left_out:
        yield "", f"the chat template leaves out: {', '.join(report.left_out)}"
    if report.ways:
        yield from memory_rows(report.ways, report.available, chats=report.chats, row_tokens=report.row_tokens)
        yield "", f"keys and values take {bytes_text(report.cached_bytes)} per token of a conversation"
