"""Whether a model computes packed batches as it computes single rows, on the learner's path and on the sampler's.

What a configuration rules out is refused before the weights are read. The rest is compared with transformers' own
logits, row by row, on a few short rows; sliding windows are narrowed for them, so that they matter. A model that fails
in its own way fails here, before a rollout is played.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from nat.backend.attention import PACKED_ATTENTION, HeadShape, Window, packed_logits, takes_packed
from nat.backend.decoder_parts import expert_weights
from nat.backend.tree_attention import PackedTree
from nat.errors import ModelNotSupported, NatError, describe_error

logger = logging.getLogger(__name__)

_KNOWN_LAYERS = frozenset({"full_attention", "sliding_attention"})
_LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})
_PROBE_LENGTHS = (5, 1, 9, 3)
_NARROW = 4
"""Tokens of a sliding window in the probe."""
_WINDOWS = ("sliding_window", "attention_chunk_size")
# Largest |packed - plain| relative to the largest |logit|: rounding stays below, a leak between rows far above. In
# bfloat16 rounding gave 0.02 to 0.03 with 24 to 30 layers and 0.055 in 7B on four bits, one foreign token 1.2.
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8, torch.bfloat16: 0.15, torch.float16: 1e-2}
_ROUTED_TOLERANCE = 0.5
"""The same in bfloat16 with experts: rounding sends a token to another one; that gave 0.02 to 0.14 with 16 layers."""
_SAME_MODEL = "copy config.json and the weights from the same model"
OTHER_KIND = "use a decoder with plain causal attention, such as Qwen2, Qwen3, Llama, Mistral, Gemma 3 or GPT-2"


def check_layers(config: PreTrainedConfig) -> None:
    """Raise if the configuration names layers that keep something else than keys and values of each token."""
    unknown = sorted(set(getattr(config.get_text_config(), "layer_types", None) or ()) - _KNOWN_LAYERS)
    if unknown:
        raise ModelNotSupported(
            f"{config.model_type} has layers of kind {', '.join(unknown)}; supported are full and sliding attention"
        )


def check_positions(config: PreTrainedConfig, max_seq_length: int) -> None:
    """Raise if a token's result depends on the length of what is computed with it: no path can then be right."""
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", max_seq_length)
    ropes = getattr(text, "rope_parameters", None) or {}
    for rope in (ropes, *(each for each in ropes.values() if isinstance(each, dict))):  # some have one for each kind
        original = rope.get("original_max_position_embeddings") or positions
        if rope.get("rope_type") in _LENGTH_DEPENDENT_ROPE and max_seq_length > original:
            raise ModelNotSupported(
                f"{config.model_type} changes its {rope['rope_type']} rotary embedding when a batch exceeds {original} "
                f"tokens, so a sequence's result would depend on its neighbours; max_seq_length is {max_seq_length}",
                hint=f"set max_seq_length to at most {original}",
            )


@torch.no_grad()
def check_forward(
    model: PreTrainedModel, implementation: str = PACKED_ATTENTION, *, max_seq_length: int | None = None
) -> list[HeadShape]:
    """Raise unless packed logits equal those of transformers' eager attention on each row alone.

    Sliding windows count as far as sequences of `max_seq_length` reach beyond them; None: those of all positions.
    Gives the heads of each attention layer, if padded attention has seen them.
    """
    name, tolerance = type(model).__name__, tolerance_of(model)
    with failing_as(f"{name} has windows that cannot be read"):
        windows = Windows(model, max_seq_length)
    with windows.shifted_to():
        difference, heads = _packed_difference(model, implementation)
    if difference <= tolerance:
        return heads
    with windows.shifted_to(2 * max(_PROBE_LENGTHS)):
        if windows.widest and _packed_difference(model, implementation)[0] <= tolerance:
            raise ModelNotSupported(
                f"{name} masks a sliding window of {windows.widest} tokens that it does not pass to its attention, so "
                "later tokens would be computed wrongly"
            )
    raise ModelNotSupported(
        f"{name} gives other logits {'for packed rows' if takes_packed(model) else 'row by row'} than transformers' "
        f"written-out attention: they differ by {difference:.1e} of the largest; rounding explains at most "
        f"{tolerance:.0e}",
        hint=OTHER_KIND,
    )


def check_row_by_row(model: PreTrainedModel, *, max_seq_length: int) -> None:
    """Let transformers compute each row alone, by its fused attention if the model has that and it agrees."""
    try:
        check_forward(model, "sdpa", max_seq_length=max_seq_length)
    except (ModelNotSupported, ValueError) as error:  # transformers', if the class has none
        logger.info("attention is written out: %s", error)
        check_forward(model, "eager", max_seq_length=max_seq_length)


class Windows:
    """The sliding windows of a model's configurations and modules that are shorter than its sequences."""

    def __init__(self, model: PreTrainedModel, max_seq_length: int | None) -> None:
        """None: as long as the model has positions."""
        max_seq_length = max_seq_length or model.config.get_text_config().max_position_embeddings
        modules: list[Any] = [*model.modules()]
        configs = [model.config.get_text_config(), *(getattr(each, "config", None) for each in modules)]
        found = [(each, name, getattr(each, name, None)) for each in (*configs, *modules) for name in _WINDOWS]
        self._usual = [
            (owner, name, window)
            for owner, name, window in found
            if isinstance(window, int) and 0 < window < max_seq_length  # 0 is none in some
        ]
        self.widest = max((window for _, _, window in self._usual), default=0)

    @contextmanager
    def shifted_to(self, width: int = _NARROW) -> Iterator[None]:
        """Give the widest this width inside the block, by default one that a few tokens exceed.

        All move alike, so what differs by a token still does.
        """
        try:
            for owner, name, window in self._usual:
                setattr(owner, name, max(1, window + width - self.widest))
            yield
        finally:
            for owner, name, window in self._usual:
                setattr(owner, name, window)


class _SeenTree(PackedTree):
    """Rows that keep what heads each layer has: some models have other ones in some layers."""

    heads: dict[int, HeadShape]

    def attend(
        self, layer: int, query_HTD: Tensor, key_GTD: Tensor, value_GTD: Tensor, *, scale: float | None, window: Window
    ) -> Tensor:
        self.heads[layer] = HeadShape(len(query_HTD), len(key_GTD), key_GTD.shape[-1], value_GTD.shape[-1])
        return super().attend(layer, query_HTD, key_GTD, value_GTD, scale=scale, window=window)


def _packed_difference(model: PreTrainedModel, implementation: str) -> tuple[float, list[HeadShape]]:
    rows, name = probe_rows(model), type(model).__name__
    model.set_attn_implementation("eager")
    try:
        with failing_as(f"{name} cannot compute a row of {len(rows[0])} tokens", f"{_SAME_MODEL}, or {OTHER_KIND}"):
            ids = [torch.tensor([row], device=model.device) for row in rows]
            plain = [model(input_ids=ids_1L, use_cache=False).logits[0] for ids_1L in ids]
    finally:
        model.set_attn_implementation(implementation)
    if model.config.get_text_config()._attn_implementation != implementation:  # noqa: SLF001 - no public name for it
        raise ModelNotSupported(f"{name} does not let its attention be replaced", hint=OTHER_KIND)
    with failing_as(f"{name} cannot run packed rows"):
        tree = _SeenTree(rows, model.device)
        tree.heads = {}
        packed = packed_logits(model, tree, torch.from_numpy(np.concatenate(tree.paths)).to(model.device))
    if not all(bool(torch.isfinite(logits).all()) for logits in plain):
        raise ModelNotSupported(
            f"{name} computes logits that are not finite in {str(model.dtype).removeprefix('torch.')}",
            hint="set dtype to float32; if it is float32 already, the weights are damaged",
        )
    return relative_difference(packed, torch.cat(plain)), list(tree.heads.values())


@contextmanager
def failing_as(what: str, hint: str = OTHER_KIND) -> Iterator[None]:
    """Whatever fails in the block is a refusal: each model's code fails in a way of its own."""
    try:
        yield
    except NatError:
        raise
    except Exception as error:
        raise ModelNotSupported(f"{what}: {describe_error(error)}", hint=hint) from error


def probe_rows(model: PreTrainedModel, *more: int) -> list[list[int]]:
    """A few short rows of random tokens, two of which begin alike, and rows of `more` tokens."""
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.config.get_text_config().vocab_size
    lengths = (*_PROBE_LENGTHS, *more)
    rows: list[list[int]] = [torch.randint(vocabulary, (n,), generator=generator).tolist() for n in lengths]
    return [*rows, rows[2][:4] + rows[0]]


def relative_difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    scale = other.float().abs().max().clamp(min=1e-6)
    return float((one.float() - other.float()).abs().max() / scale)


def tolerance_of(model: PreTrainedModel) -> float:
    """The largest relative difference that rounding explains; in bfloat16 it also sends tokens to other experts."""
    routed = model.dtype == torch.bfloat16 and expert_weights(model) > 0
    return _ROUTED_TOLERANCE if routed else _TOLERANCE[model.dtype]
