"""`python -m nat.backend.certificate JSON`: what `nat fits` says of a model, as a line of JSON; weights are not read.

The configuration, the tokenizer and the chat template go through the code that loads, serves and plans a run.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from nat.backend.forecast import UNREADABLE, predicted_memory
from nat.backend.layer_times import speed_by_layers
from nat.backend.memory import available_bytes
from nat.backend.model_loader import context_limit, fastest_dtype, load_tokenizer, read_config
from nat.backend.server.rehearsal import rehearse
from nat.backend.small_model import count_weights, judge_layers
from nat.errors import BackendError, ModelNotSupported, describe_error
from nat.sandbox.process import Sandbox
from nat.sizing.certificate import Certificate, Layers, Reading, Rehearsal, Way
from nat.sizing.forecast import bytes_text
from nat.sizing.memory import DEFAULT_RANK, Setup, Workload
from nat.sizing.shape import ModelShape

CHATS, USUAL_ROW, LONGEST_ROW, _STEP = 16, 4096, 32_768, 256
"""Chats at the same time; tokens of rows for which all weights should have room, before adapters are advised; of the
longest advised ones; and what advised lengths are rounded down to."""
_TIMED_ROW, _TIMED_ROWS, _TIMED_SHARE = 512, 8, 0.25
"""Tokens of the rows and rows of the update that are timed, and the sampled share of a row."""
SHARE = 0.95
"""Of a GPU's memory that a run may take."""
_HOST = torch.device("cpu")


def certificate(
    folder: Path,
    *,
    name: str,
    revision: str | None = None,
    gpu: int | None = None,
    max_seq_length: int | None = None,
    timed: bool = False,
) -> Certificate:
    """The verdict for this machine, or for a GPU with so many bytes; the YAML gets name and revision.

    If the speed is `timed`, too, it takes a minute more.
    """
    on_gpu = gpu is not None or torch.cuda.is_available()
    place = torch.device("cuda") if on_gpu else _HOST
    room = int(SHARE * gpu) if gpu is not None else available_bytes(place)
    device = "this machine" if gpu is None else f"a GPU of {bytes_text(gpu)}"
    workload = f"{CHATS} chats at a time, rows of up to {USUAL_ROW:,} tokens"
    made = {"model": name, "revision": revision, "device": device, "workload": workload, "room": room}
    try:
        config = read_config(folder)
        context = context_limit(config, max_seq_length)
    except ModelNotSupported as error:
        return Certificate(**made, layers=Layers(refusal=error.in_line))
    words, conversations = _words(folder)
    try:
        counted = count_weights(config)
    except Exception:  # noqa: BLE001 - each class reads its configuration in a way of its own; layers are judged apart
        counted = None
    in_bfloat16 = fastest_dtype(place, counted or 0) == torch.bfloat16
    setup, ways = Setup("cuda" if on_gpu else "cpu", "bfloat16" if in_bfloat16 else "float32"), tuple[Way, ...]()
    with suppress(*UNREADABLE):
        ways = tuple(_ways(ModelShape.of_config(config.to_dict(), counted), setup, context, room))
    layers, plain = judge_layers(config, context)
    pinned = {} if revision is None else {"revision": revision}
    begin = {"_type": "local", "model": name, **pinned, "dtype": setup.dtype, "engine": "embedded"}
    block, speed, untimed = _block(begin, ways, context), None, None
    if timed and block is not None and layers.refusal is None and layers.untried is None:
        row = min(context, _TIMED_ROW)
        load = Workload(CHATS, row, row, step_tokens=_TIMED_ROWS * row, sampled_share=_TIMED_SHARE)
        try:
            speed = speed_by_layers(config, _with(setup, block), load, plain=plain, context=context)
        except (BackendError, RuntimeError, *UNREADABLE) as error:
            untimed = describe_error(error)
    return Certificate(
        **made,
        family=config.model_type,
        architecture=MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type],
        num_parameters=counted,
        context=context,
        layers=layers,
        words=words,
        conversations=conversations,
        ways=ways,
        block=block,
        speed=speed,
        untimed=untimed,
    )


def _words(folder: Path) -> tuple[Reading, tuple[Rehearsal, ...]]:
    """The format of answers, and how conversations continue in it."""
    try:
        tokenizer = load_tokenizer(folder, Sandbox())
        found = tokenizer.words
    except BackendError as error:
        return Reading(refusal=error.in_line), ()
    words = Reading(
        refusal=found.refusal if found.proof.writes_calls else None,
        warning=None if found.proof.writes_calls else found.refusal,
        format=found.format.origin,
        writes_calls=found.proof.writes_calls,
        reads_thinking=found.format.reasoning is not None,
        misread=dict(found.proof.failed),
    )
    return words, () if words.refusal else rehearse(tokenizer)


def _ways(shape: ModelShape, setup: Setup, context: int, room: int | None) -> Iterator[Way]:
    """All weights, LoRA and QLoRA, each with its memory for rows of a usual length, and the longest rows that fit."""
    lora, most = {"rank": DEFAULT_RANK}, min(context, LONGEST_ROW)
    row = min(most, USUAL_ROW)
    workload = Workload(CHATS, row, row, step_tokens=CHATS * row)
    host = available_bytes(_HOST) if not setup.cpu and torch.cuda.is_available() else None
    for settings in ({}, {"lora": lora}, {"lora": {**lora, "load_in_4bit": True}}):
        way = _with(setup, settings)
        memory = predicted_memory(shape, way, workload, room, most)
        problem = None
        if room is not None and memory.longest_row is None:
            problem = f"{way.title} takes {bytes_text(memory.total)} at its peak; {bytes_text(room)} are there"
        elif host is not None and memory.host > host:
            problem = f"{way.title} takes {bytes_text(memory.host)} of the host's memory; {bytes_text(host)} are there"
        yield Way(memory=memory, settings=settings, problem=problem)


def _with(setup: Setup, settings: Mapping[str, Any]) -> Setup:
    """The setup with the adapters of an LLM's block."""
    lora: Mapping[str, Any] = settings.get("lora", {})
    return replace(setup, lora_rank=lora.get("rank"), load_in_4bit="load_in_4bit" in lora)


def _block(begin: dict[str, str], ways: tuple[Way, ...], context: int) -> dict[str, object] | None:
    """The LLM's block with the first way that has room for rows of a usual length, else for the longest ones."""
    fitting = [(way.memory.longest_row or min(context, LONGEST_ROW), way) for way in ways if way.problem is None]
    if not fitting:
        return None
    length, first = max(fitting, key=lambda each: min(each[0], USUAL_ROW))
    return {**begin, "max_seq_length": length // _STEP * _STEP or length, **first.settings}


def main() -> int:
    """Print the certificate of the arguments, which are one JSON object."""
    given = json.loads(sys.argv[1])
    logging.disable(logging.WARNING)  # what they say is in the certificate
    sys.stdout.write(certificate(Path(given.pop("folder")), **given).model_dump_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
