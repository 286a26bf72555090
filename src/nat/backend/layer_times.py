"""`python -m nat.backend.layer_times JSON`: how fast this machine would train a model whose weights are not there.

Two models with the configuration's own sizes and few layers are made, with weights that mean nothing. What the second
one takes more than the first is what its further layers take, and so would all others.
"""

import gc
import json
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.worker import Worker
from nat.backend.lora import LoraSettings, add_adapter, lora_config
from nat.backend.model import SOLE_ADAPTER, LoadedModel, PlainPath
from nat.backend.model_loader import context_limit, read_config
from nat.backend.model_path import path_of, sampler_linears
from nat.backend.small_model import count_weights, judge_layers, layer_lists, model_of
from nat.backend.speed import measured_speed
from nat.backend.training.learner import Learner, resolved_for
from nat.backend.training.reference import Reference
from nat.sizing.forecast import Speed
from nat.sizing.memory import Device, Setup, Workload
from nat.wire.training import TrainingConfig

_LAYERS, _WEIGHTS = 8, 400_000_000
"""Layers of the larger model, and their weights, if two have no more."""
_SECONDS = 4.0
"""For each of them, beside what it takes to make it."""
_CHATS, _ROW, _ROWS, _SAMPLED = 16, 512, 8, 0.25
"""Chats at the same time, tokens of a row, rows of an update, and the sampled share of a row."""
_BLOCK, _SPREAD = 65_521, 0.02
"""Random numbers that all weights repeat, prime so that no two rows of a matrix are equal; and how far they spread."""


def speed_by_layers(
    config: PreTrainedConfig, setup: Setup, workload: Workload, *, plain: PlainPath | None, context: int
) -> Speed:
    """The predicted speed of all layers; of a model with few of them it is measured."""
    layers = int(config.get_text_config().num_hidden_layers)
    more = min(_layers(config), layers)
    long = _speed(_loaded(_with_layers(config, more), setup, plain, context), workload)
    if more == layers:
        return long
    few = (more + 2) // 4
    gc.collect()  # the first model, whose parts know each other
    shallow = _loaded(_with_layers(config, few), setup, plain, context)
    short = _speed(shallow, replace(workload, chats=long.chats or 1))

    def seconds(less: float, greater: float) -> float:
        return greater + max(0.0, greater - less) / (more - few) * (layers - more)

    def rate(less: float, greater: float) -> float:
        return 1 / seconds(1 / less, 1 / greater)

    return long.model_copy(
        update={
            "prompt_tokens_per_second": rate(short.prompt_tokens_per_second, long.prompt_tokens_per_second),
            "step_seconds": seconds(short.step_seconds, long.step_seconds),
            "doubled_step_seconds": 0.0,
            "trained_tokens_per_second": rate(short.trained_tokens_per_second, long.trained_tokens_per_second),
            "optimizer_seconds": seconds(short.optimizer_seconds, long.optimizer_seconds),
        }
    )


def _speed(loaded: LoadedModel, workload: Workload) -> Speed:
    worker = Worker(Engine(loaded, policy_version="layers@0", limits=EngineLimits(max_num_seqs=2 * workload.chats)))
    try:
        learner = Learner(loaded, Reference(loaded, _refused))
        return measured_speed(worker, learner, workload, resolved_for(TrainingConfig(), loaded), seconds=_SECONDS)
    finally:
        worker.close()


def _layers(config: PreTrainedConfig) -> int:
    one, two = (count_weights(_with_layers(config, layers)) for layers in (1, 2))
    return max(2, min(_LAYERS, _WEIGHTS // max(1, two - one)))


def _with_layers(config: PreTrainedConfig, layers: int) -> PreTrainedConfig:
    cut = deepcopy(config)
    text = cut.get_text_config()
    text.update({name: values[:layers] for name, values in layer_lists(text).items()} | {"num_hidden_layers": layers})
    return cut


@torch.no_grad()
def _loaded(config: PreTrainedConfig, setup: Setup, plain: PlainPath | None, context: int) -> LoadedModel:
    """The model as the backend would load it; no text is read, so it has no tokenizer."""
    device = torch.device(setup.device)
    with no_init_weights():
        model = model_of(config, dtype=torch.bfloat16 if setup.dtype == "bfloat16" else torch.float32)
    block = _SPREAD * torch.randn(_BLOCK, generator=torch.Generator().manual_seed(0))
    for weight in model.parameters():
        _fill(weight, block)
    model.train(mode=False).to(device)
    heads, path = path_of(model, context, None if plain is None else plain.why)
    linears = sampler_linears(model, path)
    peft, words = None, cast("Any", None)
    if setup.lora_rank is not None:
        peft = add_adapter(model, lora_config(LoraSettings(setup.lora_rank), Path()), SOLE_ADAPTER, seed=0)
    return LoadedModel(model, words, Path(), context, frozenset(), peft, heads, linears, plain=plain)


def _fill(weight: Tensor, block: Tensor) -> None:
    """Repeat the block in a matrix; norms are one, and biases nothing."""
    if weight.dim() == 1:
        nn.init.ones_(weight)
        return
    flat = weight.view(-1)
    whole = len(flat) // len(block) * len(block)
    flat[:whole].view(-1, len(block)).copy_(block)
    flat[whole:].copy_(block[: len(flat) - whole])


def _refused() -> PreTrainedModel:
    raise AssertionError("a rehearsal compares with no reference")


def main() -> int:
    """Print the speed for the folder and the LLM's block that the arguments, one JSON object, have."""
    given = json.loads(sys.argv[1])
    block, config = given["block"], read_config(Path(given["folder"]))
    context = context_limit(config, block["max_seq_length"])
    lora = block.get("lora", {})
    device: Device = "cuda" if torch.cuda.is_available() else "cpu"
    setup = Setup(device, block["dtype"], lora_rank=lora.get("rank"), load_in_4bit=bool(lora.get("load_in_4bit")))
    row = min(context, _ROW)
    workload = Workload(_CHATS, row, row, step_tokens=_ROWS * row, sampled_share=_SAMPLED)
    _, plain = judge_layers(config, context)
    speed = speed_by_layers(config, setup, workload, plain=plain, context=context)
    sys.stdout.write(speed.model_dump_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
