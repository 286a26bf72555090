"""A residual stream and logits in float32, around layers in bfloat16.

In bfloat16 each layer would round the sum of all layers before it to eight bits, and the head every logit. Sampler and
learner group their products differently, so these roundings are most of what they differ by: 0.046 nats per token in a
real model, 0.023 without them. The layers' own products, which take the time, stay in bfloat16.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel


@dataclass(frozen=True)
class Widened:
    """A model whose residual stream and logits are in float32."""

    head: nn.Linear
    _hooks: Sequence[RemovableHandle]

    def undo(self) -> None:
        """Compute everything in the model's precision again."""
        for hook in self._hooks:
            hook.remove()
        vars(self.head).pop("forward", None)


def widened(model: PreTrainedModel) -> Widened | None:
    """Compute the sum of a model's layers, and its logits, in float32; None if it has no RMS norms or linear head.

    The norms in the layers give their products bfloat16; the last one, directly in the decoder, stays in float32. That
    a model's layers take only normed inputs is not known here: compare its logits, and `undo` what fails.
    """
    decoder, head = model.get_decoder(), model.get_output_embeddings()  # type: ignore[no-untyped-call]  # no types there
    embedding = model.get_input_embeddings()
    norms = [each for each in model.modules() if _is(each, "RMSNorm")]
    if not norms or not isinstance(head, nn.Linear) or not isinstance(embedding, nn.Module):
        return None
    last = [each for each in decoder.children() if _is(each, "RMSNorm")]
    narrow = [each for each in norms if not any(each is other for other in last)]
    rotary = [each for each in model.modules() if _is(each, "RotaryEmbedding")]
    hooks = [embedding.register_forward_hook(_widen)]
    hooks += [each.register_forward_hook(partial(_narrow, dtype=model.dtype)) for each in (*narrow, *rotary)]
    vars(head)["forward"] = partial(_in_float32, head)
    return Widened(head, hooks)


def _is(module: nn.Module, kind: str) -> bool:
    """Whether transformers calls the module so; each model has a class of its own for each kind."""
    return type(module).__name__.endswith(kind)


def _widen(module: nn.Module, inputs: object, output: Tensor) -> Tensor:  # noqa: ARG001 - torch passes them
    return output.float()


def _narrow(module: nn.Module, inputs: object, output: Any, *, dtype: torch.dtype) -> Any:  # noqa: ARG001 - the same
    return tuple(each.to(dtype) for each in output) if isinstance(output, tuple) else output.to(dtype)


def _in_float32(head: nn.Linear, x: Tensor) -> Tensor:
    return F.linear(x.float(), head.weight.float(), None if head.bias is None else head.bias.float())
