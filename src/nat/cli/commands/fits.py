"""`nat fits`: whether a model can be trained here, before its weights are downloaded or read."""

import asyncio
import json
import re
import signal
from pathlib import Path
from typing import Any

import click

from nat.builder.child_processes import run_module
from nat.cli import event_loop
from nat.cli.commands.options import json_option
from nat.cli.steps import shown_steps
from nat.errors import ModelUnavailable
from nat.hub import local_model
from nat.reports.certificate_page import certificate_json, certificate_page
from nat.sizing.certificate import JUDGING_BYTES, JUDGING_SECONDS, TIMING_SECONDS, Certificate
from nat.sizing.forecast import Speed
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
@click.option(
    "--time", "timed", is_flag=True, help="Measure the speed of this machine on some layers: a minute or two."
)
@json_option
def fits_command(
    *, model: str, revision: str | None, gpu: int | None, max_seq_length: int | None, timed: bool, as_json: bool
) -> None:
    """Tell whether MODEL, a folder, a .gguf file or a name on the Hub, can be trained; weights are not downloaded.

    It prints the model's family, how its answers are read, a conversation with tool calls that a script plays through
    the server, the memory of training, and the block for the YAML. The exit code is 0 if it fits and all is proven,
    else 1.
    """
    if timed and gpu is not None:
        raise click.UsageError("--time measures this machine, and --gpu means another one: give one of them")
    if missing := missing_packages(LOCAL_PACKAGES):
        said = f"models are judged with packages that are not installed: {', '.join(missing)}"
        raise ModelUnavailable(said, hint=install_hint("local"))
    with shown_steps() as steps:
        convert = "converting the file, once, and " if model.endswith(".gguf") else ""
        steps.begin(f"{convert}reading the model's configuration, tokenizer and chat template")
        found = local_model(Path(model).expanduser(), revision, weights=False)
        steps.begin("trying its format, its layers and a conversation")
        named = {"folder": str(found.folder), "name": model, "revision": found.revision}
        given = json.dumps({**named, "gpu": gpu, "max_seq_length": max_seq_length})
        certificate = Certificate.model_validate_json(event_loop.run(_judged(model, given))[-1])
        if timed and certificate.block is not None and not certificate.problems:
            steps.begin("measuring some of its layers")
            found_speed = event_loop.run(_timed(found.folder, certificate.block))
            certificate = certificate.model_copy(update=found_speed)
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
    if code in {75, -signal.SIGABRT}:
        raise _too_much(model, lines, f"{JUDGING_BYTES / 2**30:g} GiB of memory")
    if code or not lines:
        raise ModelUnavailable(
            f"{model} cannot be judged (exit code {code}): {said[-2000:]}", hint="please report this, with the model"
        )
    return lines


async def _timed(folder: Path, block: dict[str, Any]) -> dict[str, Any]:
    """The predicted speed of training with the block here, as fields of the certificate; or why it is not known."""
    lines: list[str] = []
    given = json.dumps({"folder": str(folder), "block": block})
    try:
        async with asyncio.timeout(TIMING_SECONDS):
            code, said = await run_module("nat.backend.layer_times", given, on_line=lines.append)
    except TimeoutError:
        return {"untimed": f"it takes more than {TIMING_SECONDS:g} s"}
    if code or not lines:
        return {"untimed": said.strip().rpartition("\n")[2] or f"exit code {code}"}
    return {"speed": Speed.model_validate_json(lines[-1])}


def _too_much(model: str, lines: list[str], bound: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"{model} cannot be judged: {lines[-1] if lines else 'starting'}: it takes more than {bound}",
        hint="compare the folder's config.json, tokenizer and chat template with those of the original model; none "
        "that is known takes so much",
    )
