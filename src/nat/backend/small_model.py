"""Judge a model's layers without its weights: by its configuration, and by a small model of the same class.

The small one has each kind of layer once, few heads and experts, and random weights. Heads keep their size, on which
rotary embeddings depend.
"""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from nat.backend.model import LoadedModel, PlainPath
from nat.backend.model_checks import check_positions
from nat.backend.model_path import path_of
from nat.backend.packed_linear import PackedLinears
from nat.backend.path_checks import proven
from nat.errors import ModelNotSupported, describe_error
from nat.sizing.certificate import Layers

_MOST_LAYERS, _WORDS, _INNER = 4, 320, 64
_MOST_WEIGHTS = 100_000_000
_SMALL: dict[str, int] = {
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"), _INNER),
    **dict.fromkeys(("shared_intermediate_size", "intermediate_size_mlp", "hidden_size_per_layer_input"), _INNER),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), _WORDS),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "num_kv_shared_layers"), 2),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"), 1),
}
"""Sizes by transformers' names; smaller ones stay."""
_TOKENS = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
"""The few words have no others."""


def judge_layers(config: PreTrainedConfig, context: int) -> tuple[Layers, PlainPath | None]:
    """The loader's verdict on the layers, without the weights, and the plain path if they take it."""
    try:
        check_positions(config, context)
        small = small_model(config)
    except ModelNotSupported as error:
        return Layers(refusal=error.in_line), None
    except Exception as error:  # noqa: BLE001 - each class computes its sizes in a way of its own
        return Layers(untried=f"a small model of its class cannot be made: {describe_error(error)}"), None
    words: Any = None  # the paths are checked with token ids; no text is read

    def loaded(plain_because: str | None) -> LoadedModel:
        heads, plain = path_of(small, context, plain_because)
        linears = PackedLinears(nn.Module())
        return LoadedModel(small, words, Path(), context, frozenset(), None, heads, linears, plain=plain)

    try:
        found = proven(loaded)
    except ModelNotSupported as error:
        return Layers(refusal=error.in_line), None
    return Layers(notice=found.notice), found.plain


def small_model(config: PreTrainedConfig) -> PreTrainedModel:
    """A model of the configuration's class with few small layers and random weights, in float32 on the CPU.

    Raises:
        Exception: the class takes no such sizes, in words of its own.

    """
    small = deepcopy(config)
    for name in small.sub_configs:
        if (part := getattr(small, name, None)) is not None:
            _shrink(part)
    if small.get_text_config() is small:
        _shrink(small)
    else:
        small.update(_TOKENS)
    if (count := count_weights(small)) > _MOST_WEIGHTS:
        raise ValueError(f"it would have {count} weights, more than {_MOST_WEIGHTS}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = model_of(small, dtype=torch.float32)
        for weight in model.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    model.train(mode=False)(input_ids=torch.tensor([[1, 2, 3]]), use_cache=False)
    return model


def count_weights(config: PreTrainedConfig) -> int:
    """Weights of the configuration's class, each once, without their memory; raises what the class raises."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in model_of(config).parameters())


def model_of(config: PreTrainedConfig, **options: Any) -> PreTrainedModel:
    """The model as the loader makes it, with attention of the class's own, and the weights that it begins with."""
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation="eager", **options)  # type: ignore[no-untyped-call]
    return model


def _shrink(config: PreTrainedConfig) -> None:
    given = config.to_dict()  # attributes may differ by layer, and raise
    lists = layer_lists(config)
    kept = _one_of_each(int(config.num_hidden_layers), list(lists.values()))
    sizes: dict[str, Any] = {name: [values[at] for at in kept] for name, values in lists.items()}
    for name, most in _SMALL.items():
        value = sizes.get(name, given.get(name))
        if isinstance(value, int | list):
            sizes[name] = [min(each, most) for each in value] if isinstance(value, list) else min(value, most)
    heads = int(config.num_attention_heads)
    pairs = int(given.get("num_key_value_heads") or heads)
    size = int(given.get("head_dim") or config.hidden_size // heads)
    few = min(pairs, 2)
    many = few * min(max(1, heads // pairs), 4)
    sizes |= {"num_hidden_layers": len(kept), "num_attention_heads": many, "hidden_size": many * size}
    if given.get("num_key_value_heads"):
        sizes["num_key_value_heads"] = few
    config.update({**sizes, **_TOKENS})


def layer_lists(config: PreTrainedConfig) -> dict[str, list[Any]]:
    """What the configuration says of each layer, by name."""
    layers = int(config.num_hidden_layers)
    return {name: value for name, value in vars(config).items() if isinstance(value, list) and len(value) == layers}


def _one_of_each(layers: int, lists: Sequence[Sequence[Any]]) -> list[int]:
    """The first layer of each kind in all lists, at least two layers, in their order."""
    kinds: dict[str, int] = {}
    for at in range(layers):
        kinds.setdefault(repr([values[at] for values in lists]), at)
    return [*kinds.values()][:_MOST_LAYERS] if len(kinds) > 1 else [*range(min(2, layers))]
