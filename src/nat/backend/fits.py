"""`python -m nat.backend.fits JSON`: what `nat fits` says of a model, as a line of JSON; weights are not read.

The configuration, the tokenizer and the chat template go through the code that loads and serves a model.
"""

import json
import logging
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from nat.backend.memory import available_bytes
from nat.backend.model_loader import context_limit, fastest_dtype, load_tokenizer, read_config
from nat.backend.words.samples import ARGUMENTS, FIRST, IDS, TOOLS, calling
from nat.errors import BackendError, describe_error
from nat.sizing.forecast import FitReport
from nat.sizing.memory import USUAL_ROW, DType, Setup, bytes_text, ways_of
from nat.sizing.shape import UNREADABLE, ModelShape
from nat.wire.json import json_text
from nat.wire.model_folder import MODEL_CONFIG

_SHARE = 0.95
"""Of a GPU's memory that a run may take."""
_USER, _SYSTEM = {"role": "user", "content": "Add one."}, {"role": "system", "content": "Be short."}
_RESULT = {"role": "tool", "content": "2", "name": FIRST, "tool_call_id": IDS[0]}
_CALL = calling((FIRST, ARGUMENTS))
_CHATS = {
    ("a system message", "system message"): [_SYSTEM, _USER],
    ("a second system message", "system message"): [_SYSTEM, _SYSTEM, _USER],
    ("a system message at the end", "system message"): [_USER, _SYSTEM],
    ("tool calls", "tool call"): [_USER, _CALL, _RESULT],
    ("a tool's result", "tool message"): [_USER, _CALL, _RESULT],
    ("text beside a tool call", "text beside a tool call"): [_USER, {**_CALL, "content": "I look."}, _RESULT],
}
"""What a template may leave out, and a chat that has it."""


def fit_report(
    folder: Path, *, name: str, revision: str | None = None, gpu: int | None = None, max_seq_length: int | None = None
) -> FitReport:
    """The report for this machine, or for a GPU with so many bytes."""
    report = FitReport(model=name, revision=revision)
    try:
        config = read_config(folder)
        context = context_limit(config, max_seq_length)
    except BackendError as error:
        return report.model_copy(update={"problems": [error.in_line]})
    found = {"family": config.model_type, "context": context}
    found["architecture"] = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]
    words, problems = _words(folder)
    memory, more = _memory(config, context, gpu)
    return report.model_copy(update={**found, **words, **memory, "problems": problems + more})


def _words(folder: Path) -> tuple[dict[str, object], list[str]]:
    try:
        tokenizer = load_tokenizer(folder)
        words = tokenizer.words
    except BackendError as error:
        return {}, [error.in_line]
    found = {
        "format": words.format.origin,
        "reads_thinking": words.format.reasoning is not None,
        "misread": dict(words.proof.failed),
        "left_out": [name for (name, kind), chat in _CHATS.items() if kind in tokenizer.left_out(chat, tools=TOOLS)],
        "warning": None if words.proof.writes_calls else words.refusal,
    }
    return found, [words.refusal] if words.proof.writes_calls and words.refusal else []


def _memory(config: PreTrainedConfig, context: int, gpu: int | None) -> tuple[dict[str, object], list[str]]:
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        counted = sum(weight.numel() for weight in model.parameters())
    except Exception as error:  # noqa: BLE001 - each class refuses its configuration in a way of its own
        architecture = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]
        return {}, [f"{architecture} cannot be made from {MODEL_CONFIG}: {describe_error(error)}"]
    place = torch.device("cuda" if gpu is not None or torch.cuda.is_available() else "cpu")
    free = int(_SHARE * gpu) if gpu is not None else available_bytes(place)
    try:
        shape = ModelShape.of_config(config.to_dict(), counted)
    except UNREADABLE:
        return {"num_parameters": counted}, [f"{MODEL_CONFIG} lacks a size of the layers, or has one below 1"]
    dtype: DType = "bfloat16" if fastest_dtype(place, counted) == torch.bfloat16 else "float32"
    setup = Setup("cuda" if place.type == "cuda" else "cpu", dtype, row_tokens=min(context, USUAL_ROW))
    ways = ways_of(shape, setup, free=free)
    width = 2 if dtype == "bfloat16" else 4
    sizes = {"chats": setup.chats, "row_tokens": setup.row_tokens, "cached_bytes": shape.cached * width}
    least = min(ways, key=lambda way: way.total)
    too_much = free is not None and least.total > free
    problem = f"{least.title} takes {bytes_text(least.total)}, and {bytes_text(free or 0)} may be taken"
    return {"num_parameters": counted, "ways": ways, "available": free, **sizes}, [problem] if too_much else []


def main() -> None:
    """Print the report of the arguments, which are one JSON object."""
    given = json.loads(sys.argv[1])
    logging.disable(logging.WARNING)  # what they say is in the report
    report = fit_report(Path(given.pop("folder")), **given)
    sys.stdout.write(f"{json_text(report)}\n")


if __name__ == "__main__":
    main()
