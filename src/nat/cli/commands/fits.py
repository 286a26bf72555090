"""`nat fits`: whether a model can be trained here, before its weights are downloaded or read."""

import asyncio
import json
import re
import signal
from pathlib import Path

import click

from nat.builder.child_processes import run_module
from nat.cli import event_loop
from nat.cli.commands.options import json_option
from nat.cli.steps import shown_steps
from nat.errors import ModelUnavailable
from nat.hub import local_model
from nat.reports.certificate_page import certificate_json, certificate_page
from nat.sandbox.frames import OUT_OF_MEMORY
from nat.sizing.certificate import JUDGING_BYTES, JUDGING_SECONDS, Certificate
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
    """Tell whether MODEL, a folder or a name on the Hub, can be trained; its weights are neither downloaded nor read.

    It prints the model's family, how its answers are read, a conversation with tool calls that a script plays through
    the server, the memory of training, and the block for the YAML. The exit code is 0 if it fits and all is proven,
    else 1.
    """
    if missing := missing_packages(LOCAL_PACKAGES):
        said = f"models are judged with packages that are not installed: {', '.join(missing)}"
        raise ModelUnavailable(said, hint=install_hint("local"))
    with shown_steps() as steps:
        steps.begin("reading the model's configuration, tokenizer and chat template")
        found = local_model(Path(model).expanduser(), revision, weights=False)
        steps.begin("trying its format, its layers and a conversation")
        named = {"folder": str(found.folder), "name": model, "revision": found.revision}
        given = json.dumps({**named, "gpu": gpu, "max_seq_length": max_seq_length})
        lines = event_loop.run(_judged(model, given))
    certificate = Certificate.model_validate_json(lines[-1])
    click.echo(certificate_json(certificate) if as_json else certificate_page(certificate))
    if certificate.problems:
        raise click.exceptions.Exit(1)


async def _judged(model: str, given: str) -> list[str]:
    """The lines that a process writes about a model's folder, within bounds of time and memory.

    Raises:
        ModelUnavailable: it was stopped at a bound, or failed.

    """
    lines: list[str] = []
    try:
        async with asyncio.timeout(JUDGING_SECONDS):
            code, said = await run_module("nat.backend.certificate", given, on_line=lines.append)
    except TimeoutError as error:
        raise _too_much(model, lines, f"{JUDGING_SECONDS:g} s") from error
    if code in {OUT_OF_MEMORY, -signal.SIGABRT}:
        raise _too_much(model, lines, f"{JUDGING_BYTES / 2**30:g} GiB of memory")
    if code or not lines:
        raise ModelUnavailable(
            f"{model} cannot be judged (exit code {code}): {said[-2000:]}", hint="please report this, with the model"
        )
    return lines


def _too_much(model: str, lines: list[str], bound: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"{model} cannot be judged: {lines[-1] if lines else 'starting'}: it takes more than {bound}",
        hint="compare the folder's config.json, tokenizer and chat template with those of the original model; none "
        "that is known takes so much",
    )
