"""Decoder layers of Llama and its relatives as the sampler computes them: the same numbers in a third of the calls.

transformers' layer calls some forty operators; with a few tokens, most of them take longer to start than to compute.
Here queries, keys and values are one product and are rotated together, so are the two halves of the MLP, and a norm is
one call. What a layer passes to its attention is seen in a first run, not read from its configuration.

Linear layers with LoRA that take the same input are computed together, too: peft calls some seven operators for each.
The first products of all low ranks are one, and each second one adds to the result. Numbers are rounded where peft
rounds them.

Shapes: T tokens, N width, H query heads, G key/value heads, D head size, X any number of heads, R the sum of the ranks,
M the sum of the outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from peft.tuners.lora import Linear
from torch import Tensor, nn
from transformers import PreTrainedModel

from nat.backend.attention import PackedBatch, PackedRows, Window

Siblings = tuple[nn.Module, ...]
"""Linear layers that take the same input."""

_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_ATTENTION, _NORMS = {"q_proj", "k_proj", "v_proj", "o_proj"}, {"q_norm", "k_norm"}
_MLP = {"gate_proj", "up_proj", "down_proj", "act_fn"}


class _Attended(NamedTuple):
    """What a layer passes to its attention."""

    groups: int
    """Key/value heads, G."""
    size: int
    """Head size, D."""
    scale: float | None
    window: Window


class SeenRows:
    """Rows that keep what each layer passes to its attention; a `PackedBatch` that no kernel for segments takes."""

    def __init__(self, rows: PackedRows) -> None:
        self._rows = rows
        self.token_ids_T, self.position_ids_T = rows.token_ids_T, rows.position_ids_T
        self.seen: dict[int, _Attended] = {}

    def attend(
        self, layer: int, query_HTD: Tensor, key_GTD: Tensor, value_GTD: Tensor, *, scale: float | None, window: Window
    ) -> Tensor:
        """The rows' own attention."""
        self.seen[layer] = _Attended(len(key_GTD), key_GTD.shape[-1], scale, window)
        return self._rows.attend(layer, query_HTD, key_GTD, value_GTD, scale=scale, window=window)


class _LowRank(NamedTuple):
    """What the active adapter adds to the layers."""

    down_RN: Tensor
    ups: Sequence[tuple[slice, slice, Tensor, float]]
    """For each layer its outputs, its ranks, the transposed second matrix and the scale."""


class AdaptedProduct:
    """Computes [T, M], the outputs of the layers side by side, without gradients.

    It keeps copies of the first matrices of the adapters that it has computed, where they are, since CUDA graphs may
    read them: drop the object when these have changed.
    """

    def __init__(self, layers: Sequence[Linear], base: Callable[[Tensor], Tensor]) -> None:
        """`base` gives the outputs of the layers without their adapters, in memory of its own."""
        self._layers = layers
        self._base = base
        self._low_ranks: dict[str, _LowRank | None] = {}

    def __call__(self, x_TN: Tensor) -> Tensor:
        first = self._layers[0]
        if first.disable_adapters:
            return self._base(x_TN)
        if (name := str(first.active_adapter)) not in self._low_ranks:
            self._low_ranks[name] = _low_rank(self._layers)
        if (low_rank := self._low_ranks[name]) is None:
            return torch.cat([layer(x_TN) for layer in self._layers], -1)
        down_RN, ups = low_rank
        out_TM = self._base(x_TN)
        sum_TM, inner_TR = out_TM.to(down_RN.dtype), F.linear(x_TN.to(down_RN.dtype), down_RN)
        for outputs, ranks, up, scale in ups:
            sum_TM[:, outputs].addmm_(inner_TR[:, ranks], up, alpha=scale)
        return sum_TM.to(out_TM.dtype)


class LeanLayer:
    """Computes one decoder layer, without gradients: merged products are those of reordered weights."""

    def __init__(self, layer: Any, attended: _Attended) -> None:
        self.layer = layer
        self._attended = attended
        self.merged: Mapping[Siblings, Callable[[Tensor], Tensor]] = {}
        """Products of several linear layers at once, where there are some; set by the owner of reordered weights."""
        self._adapted: dict[Siblings, AdaptedProduct] = {}

    @property
    def siblings(self) -> tuple[Siblings, Siblings, Siblings, Siblings]:
        """The linear layers that one product can replace, as they are now: adapters put others in their place."""
        attention, mlp = self.layer.self_attn, self.layer.mlp
        into = (attention.q_proj, attention.k_proj, attention.v_proj), (mlp.gate_proj, mlp.up_proj)
        return into[0], (attention.o_proj,), into[1], (mlp.down_proj,)

    def forget(self) -> None:
        """Drop the copies of adapters that training changes."""
        self._adapted.clear()

    def forward(
        self, hidden_states: Tensor, *, position_embeddings: tuple[Tensor, Tensor], packed: PackedBatch, **_: object
    ) -> Tensor:
        """What the layer itself gives, [1, T, N]."""
        layer, (in_attention, out_of_attention, in_mlp, out_of_mlp) = self.layer, self.siblings
        attention, mlp, (groups, size, scale, window) = layer.self_attn, layer.mlp, self._attended
        x_TN: Tensor = hidden_states[0]
        outputs = self._product(in_attention, _normed(layer.input_layernorm, x_TN))
        outputs_XTD = outputs.view(len(x_TN), -1, size).transpose(0, 1)
        turned_XTD, value_GTD = outputs_XTD[:-groups], outputs_XTD[-groups:]
        if hasattr(attention, "q_norm"):
            query_HTD, key_GTD = turned_XTD[:-groups], turned_XTD[-groups:]
            turned_XTD = torch.cat([_normed(attention.q_norm, query_HTD), _normed(attention.k_norm, key_GTD)])
        turned_XTD = _rotated(turned_XTD, *position_embeddings)
        heads = turned_XTD[:-groups], turned_XTD[-groups:], value_GTD
        attended_THD = packed.attend(attention.layer_idx, *heads, scale=scale, window=window)
        x_TN = x_TN + self._product(out_of_attention, attended_THD.flatten(1))
        gate, up = self._product(in_mlp, _normed(layer.post_attention_layernorm, x_TN)).chunk(2, -1)
        x_TN = x_TN + self._product(out_of_mlp, mlp.act_fn(gate) * up)
        return x_TN.unsqueeze(0)

    def _product(self, siblings: Siblings, x: Tensor) -> Tensor:
        if (product := self.merged.get(siblings) or self._adapted.get(siblings)) is not None:
            return product(x)
        adapted = [layer for layer in siblings if type(layer) is Linear]
        if len(adapted) == len(siblings):
            base: Siblings = tuple(layer.base_layer for layer in adapted)
            self._adapted[siblings] = AdaptedProduct(adapted, partial(self._product, base))
            return self._adapted[siblings](x)
        return siblings[0](x) if len(siblings) == 1 else torch.cat([each(x) for each in siblings], -1)


def lean_layers(model: PreTrainedModel, seen: Mapping[int, _Attended]) -> list[LeanLayer]:
    """All decoder layers of a model, whose attention got what was `seen`; none if they have other parts.

    A layer of these parts may still compute something else, such as scaled sums: compare the model's logits.
    """
    layers = list(getattr(model.base_model, "layers", ()))
    if len(layers) != len(seen) or not all(map(_is_known, layers)):
        return []
    return [LeanLayer(layer, seen[layer.self_attn.layer_idx]) for layer in layers]


def _is_known(layer: nn.Module) -> bool:
    if _children(layer) != _LAYER:
        return False
    attention, mlp = (_children(layer.get_submodule(name)) for name in ("self_attn", "mlp"))
    norms = [module for module in layer.modules() if type(module).__name__.endswith("Norm")]
    return (
        mlp == _MLP
        and attention in (_ATTENTION, _ATTENTION | _NORMS)
        and all(hasattr(norm, "variance_epsilon") for norm in norms)
    )


def _children(module: nn.Module) -> set[str]:
    return {name for name, _ in module.named_children()}


def _normed(norm: Any, x: Tensor) -> Tensor:
    """An RMS norm, in the precision of its weight, as the products after it; the sum of the layers may be wider."""
    weight: Tensor = norm.weight
    return (weight * F.rms_norm(x, x.shape[-1:], None, norm.variance_epsilon)).to(weight.dtype)


def _rotated(x_XTD: Tensor, cos_1TD: Tensor, sin_1TD: Tensor) -> Tensor:
    half = x_XTD.shape[-1] // 2
    cos, sin = cos_1TD[..., :half], sin_1TD[..., :half]
    one, other = x_XTD[..., :half], x_XTD[..., half:]
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)


def _low_rank(layers: Sequence[Linear]) -> _LowRank | None:
    """None if the active adapters are several, lack a layer, or are more than two matrices."""
    [name, *others] = layers[0].active_adapters
    if others or not all(_is_usual(layer, name) for layer in layers):
        return None
    pairs: list[tuple[Any, Any]] = [(layer.lora_A[name], layer.lora_B[name]) for layer in layers]
    ranks, outputs = ([len(each.weight) for each in half] for half in zip(*pairs, strict=True))
    ups = zip(_slices(outputs), _slices(ranks), pairs, layers, strict=True)
    return _LowRank(
        torch.cat([down.weight.detach() for down, _ in pairs]),
        [(at, own, up.weight.detach().T, layer.scaling[name]) for at, own, (_, up), layer in ups],
    )


def _is_usual(layer: Linear, name: str) -> bool:
    return (
        name in layer.lora_A
        and name not in layer.lora_variant
        and not layer.merged
        and getattr(layer.lora_B[name], "bias", None) is None
    )


def _slices(sizes: Sequence[int]) -> list[slice]:
    return [slice(start, end) for start, end in pairwise(accumulate(sizes, initial=0))]
