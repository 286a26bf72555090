"""`python -m nat.backend.certificate FOLDER`: what `nat fits` says of a model, as a line of JSON; weights are not read.

The configuration, the tokenizer and the chat template go through the code that loads, serves and plans a run.
"""

import argparse
import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from nat.backend.forecast import UNREADABLE, predicted_memory
from nat.backend.memory import available_bytes
from nat.backend.model_loader import context_limit, fastest_dtype, load_tokenizer, read_config
from nat.backend.server.rehearsal import rehearse
from nat.backend.small_model import count_weights, judge_layers
from nat.backend.tokenizer import ChatTokenizer
from nat.errors import ModelCodeStopped, ModelNotSupported
from nat.sandbox.process import Sandbox
from nat.sizing.certificate import Certificate, Conversation, Layers, Refusal, Way, Words
from nat.sizing.forecast import bytes_text
from nat.sizing.memory import DEFAULT_RANK, Setup, Workload, predict
from nat.sizing.shape import ModelShape

CHATS = 16
"""Chats at the same time, each as long as a row."""
USUAL_ROW = 4096
"""Tokens of a row that all weights should have room for, before adapters are advised."""
LONGEST_ROW = 32_768
SHARE = 0.95
"""Of a GPU's memory that a run may take."""
_STEP = 256


def certificate(
    folder: Path,
    *,
    name: str,
    revision: str | None = None,
    gpu: int | None = None,
    max_seq_length: int | None = None,
) -> Certificate:
    """The verdict on a folder's model, on this machine or on a GPU with so many bytes.

    `name` and `revision` are those that the YAML is to have.
    """
    on_gpu = gpu is not None or torch.cuda.is_available()
    room = int(SHARE * gpu) if gpu is not None else available_bytes(torch.device("cuda" if on_gpu else "cpu"))
    device = "this machine" if gpu is None else f"a GPU of {bytes_text(gpu)}"
    found = Certificate(model=name, revision=revision, layers=Layers(), words=Words(), device=device, room=room)
    try:
        config = read_config(folder)
        context = context_limit(config, max_seq_length)
    except ModelNotSupported as error:
        return found.model_copy(update={"layers": Layers(refusal=_refusal(error))})
    tokenizer, words, conversations = _words(folder)
    counted, shape = _num_parameters(config), None
    try:
        shape = ModelShape.of_config(config.to_dict(), counted)
    except UNREADABLE:
        logging.getLogger(__name__).info("no memory is predicted", exc_info=True)
    count = counted or (0 if shape is None else shape.num_parameters)
    bits = torch.bfloat16 if on_gpu else fastest_dtype(torch.device("cpu"), count)
    setup = Setup("cuda" if on_gpu else "cpu", "bfloat16" if bits == torch.bfloat16 else "float32")
    ways = () if shape is None else tuple(_ways(shape, setup, context, room))
    return found.model_copy(
        update={
            "family": config.model_type,
            "architecture": MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type],
            "num_parameters": count or None,
            "context": context,
            "layers": judge_layers(config, context, tokenizer),
            "words": words,
            "conversations": tuple(conversations),
            "ways": ways,
            "workload": f"{CHATS} chats at a time, rows of {min(context, USUAL_ROW):,} tokens",
            "block": _block({"model": name, "revision": revision, "dtype": setup.dtype}, ways, context),
        }
    )


def _refusal(error: ModelNotSupported | ModelCodeStopped) -> Refusal:
    return Refusal(message=error.message, hint=error.hint)


def _words(folder: Path) -> tuple[ChatTokenizer | None, Words, list[Conversation]]:
    """The format of answers, and how conversations continue in it."""
    tokenizer = None
    try:
        tokenizer = load_tokenizer(folder, Sandbox())
        found = tokenizer.words
    except (ModelNotSupported, ModelCodeStopped) as error:
        return tokenizer, Words(refusal=_refusal(error)), []
    words = Words(
        refusal=None if found.refusal is None else Refusal(message=found.refusal),
        format=found.format.origin,
        writes_calls=found.proof.writes_calls,
        reads_thinking=found.format.reasoning is not None,
        misread=dict(found.proof.failed),
    )
    return tokenizer, words, [] if words.refusal else rehearse(tokenizer)


def _num_parameters(config: PreTrainedConfig) -> int | None:
    """Weights of the class without their memory; None if transformers cannot make it of this configuration."""
    try:
        return count_weights(config)
    except Exception:  # noqa: BLE001 - each class reads its configuration in a way of its own; layers are judged apart
        return None


def _ways(shape: ModelShape, setup: Setup, context: int, room: int | None) -> Iterator[Way]:
    """All weights, LoRA and QLoRA, each with its memory for rows of a usual length."""
    lora = {"rank": DEFAULT_RANK}
    most = min(context, LONGEST_ROW)
    row = min(most, USUAL_ROW)
    workload = Workload(CHATS, row, row, step_tokens=CHATS * row)
    for adapters in (None, lora, {**lora, "load_in_4bit": True}):
        rank = None if adapters is None else DEFAULT_RANK
        way = replace(setup, lora_rank=rank, load_in_4bit=bool(adapters and "load_in_4bit" in adapters))
        memory = predicted_memory(shape, way, workload.with_rows(most), room, most)
        usual = predict(shape, way, workload, free=room)
        memory = memory.model_copy(update={"parts": dict(usual.parts), "total": usual.total, "host": usual.host})
        host = available_bytes(torch.device("cpu")) if not way.cpu and torch.cuda.is_available() else None
        problem = None
        if room is not None and memory.longest_row is None:
            problem = f"{way.title} takes {bytes_text(memory.total)} at its peak; {bytes_text(room)} are there"
        elif host is not None and memory.host > host:
            problem = f"{way.title} takes {bytes_text(memory.host)} of the host's memory; {bytes_text(host)} are there"
        yield Way(memory=memory, settings={} if adapters is None else {"lora": adapters}, problem=problem)


def _block(begin: Mapping[str, str | None], ways: tuple[Way, ...], context: int) -> dict[str, object] | None:
    """The LLM's block with the first way that has room for rows of a usual length, else for the longest ones."""
    fitting = [way for way in ways if way.problem is None]
    if not fitting:
        return None
    usual = min(context, USUAL_ROW)
    lengths = [way.memory.longest_row or min(context, LONGEST_ROW) for way in fitting]
    at = next((at for at, length in enumerate(lengths) if length >= usual), lengths.index(max(lengths)))
    length = lengths[at] if lengths[at] < _STEP else lengths[at] // _STEP * _STEP
    named = {key: value for key, value in begin.items() if value is not None}
    return {"_type": "local", **named, "engine": "embedded", "max_seq_length": length, **fitting[at].settings}


def main() -> int:
    """Print the certificate of the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--revision")
    parser.add_argument("--gpu", type=int)
    parser.add_argument("--max_seq_length", type=int)
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # what they say is in the certificate
    sys.stdout.write(certificate(**vars(given)).model_dump_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
