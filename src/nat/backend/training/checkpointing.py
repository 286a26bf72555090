"""Gradient checkpointing: decoder layers that keep their input alone, and compute again in the backward pass.

What a layer would keep otherwise depends on the architecture, so it is measured, on a forward pass of a few tokens.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from math import ceil

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from nat.backend.attention import packed_logits
from nat.backend.memory import room_for
from nat.backend.tree_attention import PackedTree
from nat.errors import UpdateRejected
from nat.sizing.rules import CHECKPOINTED_SHARE
from nat.wire.training import GradientCheckpointing

logger = logging.getLogger(__name__)

_PROBE_TOKENS = 64


class Checkpointing:
    """Chooses the layers of a model to checkpoint."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]

    @cached_property
    def bytes_per_token(self) -> float:
        """Activations that are kept without checkpointing, for all layers."""
        return activation_bytes(self._model)

    def check_room(self, tokens: int) -> None:
        """Refuse a pass over more tokens than the memory holds in one layer; the system would kill the process."""
        needed = self.bytes_per_token * tokens / max(1, len(self.layers))
        free = room_for(needed, self._model.device)
        if free is not None and needed > free:
            raise UpdateRejected(
                f"a micro-batch has {tokens} tokens, whose activations take {needed / 1e9:.1f} GB in each layer; "
                f"{free / 1e9:.1f} GB are free",
                kind="invalid_batch",
                hint="lower micro_batch_tokens; a row of more tokens than that has a micro-batch of its own, so train "
                "on shorter rollouts if it is low already",
            )

    @contextmanager
    def forward(self, choice: GradientCheckpointing, tokens: int) -> Iterator[None]:
        """Checkpoint layers in the forward pass of the block, which computes this number of tokens."""
        free = room_for(self.bytes_per_token * tokens / CHECKPOINTED_SHARE, self._model.device)
        with checkpointed(self.choose(choice, tokens, free)):
            yield

    def choose(self, choice: GradientCheckpointing, tokens: int, free: int | None) -> Sequence[nn.Module]:
        """The layers to checkpoint: all, none, or with `auto` as many as CHECKPOINTED_SHARE of the free bytes asks for.

        They are the first ones: when the backward pass reaches them, the others have released what they kept.
        """
        if choice != "auto" or free is None or not self.layers:
            return self.layers if choice is True else []
        needed = self.bytes_per_token * tokens
        count = ceil(max(0.0, needed - CHECKPOINTED_SHARE * free) / (needed / len(self.layers)))
        if count:
            logger.info(
                "gradient checkpointing for %d of %d layers: %d tokens would take %.1f of the free %.1f GB",
                *(count, len(self.layers), tokens, needed / 1e9, free / 1e9),
            )
        return self.layers[:count]


@contextmanager
def checkpointed(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Checkpoint these layers in the forward passes of the block.

    transformers' own switch works in training mode alone, which would turn dropout on.
    """
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def activation_bytes(model: PreTrainedModel) -> float:
    """Bytes per token that a forward pass without checkpointing keeps for the backward pass."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    rows = PackedTree([[0] * _PROBE_TOKENS], model.device)
    with torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
        graph = packed_logits(model, rows, torch.zeros(1, dtype=torch.long, device=model.device))
    assert graph.requires_grad, "something is trained"
    return sum(kept.values()) / _PROBE_TOKENS
