"""Which path a model takes, packed rows or the plain one, and how its sampler computes the layers on it."""

import logging

import torch
from torch import nn
from transformers import PreTrainedModel

from nat.backend.attention import FLASH_ATTENTION, PACKED_ATTENTION, HeadShape, PackedRows, packed_logits
from nat.backend.lean_layers import LeanLayer, SeenRows, lean_layers
from nat.backend.model import PlainPath
from nat.backend.model_checks import (
    check_forward,
    check_layers,
    check_row_by_row,
    probe_rows,
    relative_difference,
    tolerance_of,
)
from nat.backend.packed_linear import PackedLinears, exchanged
from nat.backend.wide_residual import Widened, widened
from nat.errors import ModelNotSupported

logger = logging.getLogger(__name__)


def path_of(model: PreTrainedModel, limit: int, plain_because: str | None) -> tuple[list[HeadShape], PlainPath | None]:
    """The heads of a model that takes packed rows of up to `limit` tokens; of another one, why it does not.

    Raises:
        ModelNotSupported: it cannot be computed row by row either.

    """
    if plain_because is None:
        try:
            check_layers(model.config)
            heads = check_forward(model, max_seq_length=limit)
            if model.device.type == "cuda" and model.dtype == torch.bfloat16:
                try:  # rows without padding, if the kernel for that gives the model's logits
                    check_forward(model, FLASH_ATTENTION, max_seq_length=limit)
                except ModelNotSupported as error:
                    logger.warning("training pads its rows, as a kernel that does not fails here: %s", error.message)
                    model.set_attn_implementation(PACKED_ATTENTION)
            return heads, None
        except ModelNotSupported as error:
            plain_because = error.message
    try:
        check_row_by_row(model, max_seq_length=limit)
    except ModelNotSupported as error:
        if error.message == plain_because:
            raise
        raise ModelNotSupported(
            f"{error.message}; before, packed rows failed: {plain_because}", hint=error.hint
        ) from error
    return [], PlainPath(plain_because)


def sampler_linears(model: PreTrainedModel, plain: PlainPath | None) -> PackedLinears:
    """The linear layers as the sampler computes them; on the plain path transformers computes them as they are."""
    if plain is not None:
        return PackedLinears(nn.Module())
    wide = widen(model)
    return PackedLinears(model, None if wide is None else wide.head, lean(model))


def widen(model: PreTrainedModel) -> Widened | None:
    """Keep sums and logits of a bfloat16 model on a CPU in float32; None if its layers cannot be fed so."""
    wide = widened(model) if model.device.type == "cpu" and model.dtype == torch.bfloat16 else None
    if wide is None:
        return None
    try:
        check_forward(model)
    except (ModelNotSupported, RuntimeError) as error:  # torch's, if a product gets both precisions
        logger.info("sums and logits are in bfloat16: %s", error)
        wide.undo()
        return None
    return wide


@torch.no_grad()
def lean(model: PreTrainedModel) -> list[LeanLayer]:
    """The decoder layers as the sampler computes them; none if the model gives other logits with them."""
    rows = SeenRows(PackedRows.of(probe_rows(model), model.device))
    usual = packed_logits(model, rows)
    layers = lean_layers(model, rows.seen)
    try:
        with exchanged([(layer.layer, layer.forward) for layer in layers]):
            difference = relative_difference(packed_logits(model, rows), usual)
    except RuntimeError as error:  # such as torch's, of shapes that do not fit
        logger.info("the sampler computes the layers as transformers does: %s", error)
        return []
    return layers if difference <= tolerance_of(model) else []
