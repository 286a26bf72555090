"""`python -m nat.backend.certificate JSON`: what `nat fits` says of a model, as a line of JSON; weights are not read.

The configuration, the tokenizer and the chat template go through the code that loads, serves and plans a run.
"""

import json
import logging
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from nat.backend.forecast import UNREADABLE, predicted_memory
from nat.backend.memory import available_bytes, reserved_bytes
from nat.backend.model_loader import context_limit, fastest_dtype, load_tokenizer, read_config
from nat.backend.server.rehearsal import rehearse
from nat.backend.small_model import count_weights, judge_layers
from nat.errors import BackendError, ModelNotSupported, describe_error
from nat.sizing.certificate import JUDGING_BYTES, Certificate, Layers, Reading, Rehearsal, Way
from nat.sizing.forecast import bytes_text
from nat.sizing.memory import DEFAULT_RANK, Setup, Workload
from nat.sizing.shape import ModelShape
from nat.wire.json import json_text
from nat.wire.model_folder import MODEL_CONFIG

CHATS, USUAL_ROW, LONGEST_ROW, _STEP = 16, 4096, 32_768, 256
"""Chats at the same time; tokens of rows for which all weights should have room, before adapters are advised; of the
longest advised ones; and what advised lengths are rounded down to."""
SHARE = 0.95
"""Of a GPU's memory that a run may take."""
_STACK_BYTES = 8 * 2**20
"""Reserved by each thread, used or not."""
_HOST = torch.device("cpu")


def certificate(
    folder: Path,
    *,
    name: str,
    revision: str | None = None,
    gpu: int | None = None,
    max_seq_length: int | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> Certificate:
    """The verdict for this machine, or for a GPU with so many bytes; the YAML gets name and revision.

    `on_step` is told what is judged next.
    """
    on_gpu = gpu is not None or torch.cuda.is_available()
    place = torch.device("cuda") if on_gpu else _HOST
    room = int(SHARE * gpu) if gpu is not None else available_bytes(place)
    device = "this machine" if gpu is None else f"a GPU of {bytes_text(gpu)}"
    workload = f"{CHATS} chats at a time, rows of up to {USUAL_ROW:,} tokens"
    made = {"model": name, "revision": revision, "device": device, "workload": workload, "room": room}
    on_step("the configuration")
    try:
        config = read_config(folder)
        context = context_limit(config, max_seq_length)
    except ModelNotSupported as error:
        return Certificate(**made, layers=Layers(refusal=error.in_line))
    words, conversations = _words(folder, on_step)
    on_step("the layers")
    counted, layers = _layers(config, context)
    in_bfloat16 = fastest_dtype(place, counted or 0) == torch.bfloat16
    setup, ways = Setup("cuda" if on_gpu else "cpu", "bfloat16" if in_bfloat16 else "float32"), tuple[Way, ...]()
    with suppress(*UNREADABLE):
        ways = tuple(_ways(ModelShape.of_config(config.to_dict(), counted), setup, context, room))
    pinned = {} if revision is None else {"revision": revision}
    begin = {"_type": "local", "model": name, **pinned, "dtype": setup.dtype, "engine": "embedded"}
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
        block=_block(begin, ways, context),
    )


def _layers(config: PreTrainedConfig, context: int) -> tuple[int | None, Layers]:
    """The weights, None if the model's class refuses its configuration; and the verdict on the layers."""
    try:
        counted = count_weights(config)
    except Exception as error:  # noqa: BLE001 - each class refuses its configuration in a way of its own
        name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]
        return None, Layers(refusal=f"{name} cannot be made from {MODEL_CONFIG}: {describe_error(error)}")
    return counted, judge_layers(config, context)[0]


def _words(folder: Path, on_step: Callable[[str], None]) -> tuple[Reading, tuple[Rehearsal, ...]]:
    """The format of answers, and how conversations continue in it."""
    on_step("the tokenizer and the chat template")
    try:
        tokenizer = load_tokenizer(folder)
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
    on_step("a conversation")
    return words, () if words.refusal else rehearse(tokenizer)


def _ways(shape: ModelShape, setup: Setup, context: int, room: int | None) -> Iterator[Way]:
    """All weights, LoRA and QLoRA, each with its memory for rows of a usual length, and the longest rows that fit."""
    lora, most = {"rank": DEFAULT_RANK}, min(context, LONGEST_ROW)
    row = min(most, USUAL_ROW)
    workload = Workload(CHATS, row, row, step_tokens=CHATS * row)
    host = available_bytes(_HOST) if not setup.cpu and torch.cuda.is_available() else None
    for settings in ({}, {"lora": lora}, {"lora": {**lora, "load_in_4bit": True}}):
        way = replace(setup, lora_rank=DEFAULT_RANK if settings else None, load_in_4bit="4bit" in str(settings))
        memory = predicted_memory(shape, way, workload, room, most)
        problem = None
        if room is not None and memory.longest_row is None:
            problem = f"{way.title} takes {bytes_text(memory.total)} at its peak; {bytes_text(room)} are there"
        elif host is not None and memory.host > host:
            problem = f"{way.title} takes {bytes_text(memory.host)} of the host's memory; {bytes_text(host)} are there"
        yield Way(memory=memory, settings=settings, problem=problem)


def _block(begin: dict[str, str], ways: tuple[Way, ...], context: int) -> dict[str, object] | None:
    """The LLM's block with the first way that has room for rows of a usual length, else for the longest ones."""
    fitting = [(way.memory.longest_row or min(context, LONGEST_ROW), way) for way in ways if way.problem is None]
    if not fitting:
        return None
    length, first = max(fitting, key=lambda each: min(each[0], USUAL_ROW))
    return {**begin, "max_seq_length": length // _STEP * _STEP or length, **first.settings}


def main() -> int:
    """Print what is judged, line by line, and then the certificate of the arguments, which are one JSON object."""
    given = json.loads(sys.argv[1])
    logging.disable(logging.WARNING)  # what they say is in the certificate
    _limit_memory(with_device=given["gpu"] is None)
    try:
        found = certificate(Path(given.pop("folder")), on_step=_write_line, **given)
    except MemoryError:
        return 75
    _write_line(json_text(found))
    return 0


def _write_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _limit_memory(*, with_device: bool) -> None:
    """Let a folder that asks for any amount of memory get an error, where the system counts what is used."""
    if with_device and torch.cuda.is_available():
        torch.cuda.mem_get_info()  # makes CUDA reserve what it needs
    if (reserved := reserved_bytes()) is not None:
        limit = reserved + torch.get_num_threads() * _STACK_BYTES + JUDGING_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    sys.exit(main())
