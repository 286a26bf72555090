"""Which path a model takes, packed rows or the plain one, and how its sampler computes the layers on it."""

import logging
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
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
from nat.errors import ModelNotSupported

logger = logging.getLogger(__name__)


def path_of(model: PreTrainedModel, limit: int, plain_because: str | None) -> tuple[list[HeadShape], PlainPath | None]:
    """The heads of a model that takes packed rows of up to `limit` tokens; of another one, why it does not."""
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
    return PackedLinears(model, widen(model), lean(model))


def widen(model: PreTrainedModel) -> nn.Linear | None:
    """Keep sums and logits of a bfloat16 model on a CPU in float32; gives its head, None if its layers are not fed so.

    In bfloat16 each layer would round the sum of all layers before it to eight bits, and the head every logit. Sampler
    and learner group their products differently, so these roundings are most of what they differ by: 0.046 nats per
    token in a real model, 0.023 without them. The layers' own products, which take the time, stay in bfloat16: the
    norms in the layers give them that, and the last one, directly in the decoder, stays in float32.
    """
    decoder, head = model.get_decoder(), model.get_output_embeddings()  # type: ignore[no-untyped-call]  # no types there
    embedding = model.get_input_embeddings()
    norms = [each for each in model.modules() if _is(each, "RMSNorm")]
    if model.device.type != "cpu" or model.dtype != torch.bfloat16 or not norms:
        return None
    if not isinstance(head, nn.Linear) or not isinstance(embedding, nn.Module):
        return None
    last = [each for each in decoder.children() if _is(each, "RMSNorm")]
    narrow = [each for each in norms if not any(each is other for other in last)]
    rotary = [each for each in model.modules() if _is(each, "RotaryEmbedding")]
    hooks = [embedding.register_forward_hook(_widen)]
    hooks += [each.register_forward_hook(partial(_narrow, dtype=model.dtype)) for each in (*narrow, *rotary)]
    vars(head)["forward"] = partial(_in_float32, head)
    try:
        check_forward(model)  # whether its layers take only normed inputs is not known
    except (ModelNotSupported, RuntimeError) as error:  # torch's, if a product gets both precisions
        logger.info("sums and logits are in bfloat16: %s", error)
        for hook in hooks:
            hook.remove()
        vars(head).pop("forward")
        return None
    return head


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


def _is(module: nn.Module, kind: str) -> bool:
    return type(module).__name__.endswith(kind)


def _widen(module: nn.Module, inputs: object, output: Tensor) -> Tensor:  # noqa: ARG001 - torch passes them
    return output.float()


def _narrow(module: nn.Module, inputs: object, output: Any, *, dtype: torch.dtype) -> Any:  # noqa: ARG001 - the same
    return tuple(each.to(dtype) for each in output) if isinstance(output, tuple) else output.to(dtype)


def _in_float32(head: nn.Linear, x: Tensor) -> Tensor:
    return F.linear(x.float(), head.weight.float(), None if head.bias is None else head.bias.float())
