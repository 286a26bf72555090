"""The parts of a model that tokens of text go through, and of them the linear layers for adapters.

Routers are left alone: they choose experts, so a small change would send tokens elsewhere. Towers for images and sounds
are no part of the decoder. Experts that are one tensor with three dimensions are no linear layers.
"""

import copy
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput
from transformers.pytorch_utils import Conv1D

_ROUTERS = {"gate", "router", "shared_expert_gate"}
"""How transformers' models call them, or the module around their linear layer."""
_NO_LAYERS = _ROUTERS | {"lora_A", "lora_B"}
_EXPERT_DIMENSIONS = 3


def decoder(model: PreTrainedModel) -> nn.Module:
    """The part that gives hidden states."""
    return model.get_submodule(_decoder_name(model))


def head(model: PreTrainedModel, **replaced: nn.Module) -> nn.Module:
    """The model after its decoder (head, scaling, soft caps), with the same parameters or some children `replaced`.

    Hidden states go in as `inputs_embeds`.
    """
    after = copy.copy(model)
    passed = {_decoder_name(model): _Passthrough(decoder(model))}
    after._modules = {**model._modules, **passed, **replaced}  # noqa: SLF001 - nn.Module has no public way
    return after


def _decoder_name(model: PreTrainedModel) -> str:
    named = str(model.base_model_prefix)
    return named if named in dict(model.named_children()) else "model"


class _Passthrough(nn.Module):
    """Replaces the decoder: hidden states come in as embeddings and go out unchanged."""

    def __init__(self, replaced: nn.Module) -> None:
        super().__init__()
        self._replaced = (replaced,)  # in a tuple, so that it is no part of this module

    @property
    def decoder(self) -> "_Passthrough":
        """Itself: OPT's head calls this part of its model."""
        return self

    def __getattr__(self, name: str) -> Any:
        """What a head reads from its decoder, such as Falcon H1's factor of its logits."""
        return getattr(self._replaced[0], name)

    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> "_HiddenStates":
        return _HiddenStates(last_hidden_state=inputs_embeds)


class _HiddenStates(BaseModelOutput):
    """What else a decoder may give, such as the logits of its routers, is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def decoder_linears(model: PreTrainedModel) -> list[str]:
    """Names of the decoder's linear layers without routers; adapters that they have already are no layers.

    Of a state space layer, which has a parameter D, it is the first one: kernels read the weights of the others.
    """
    start = _prefix(model)
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # no types in transformers
    names = [
        name.removesuffix(".base_layer")
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head and name.startswith(start)
    ]
    spaces = {name.rpartition(".")[0] for name, _ in model.named_parameters() if name.endswith(".D")}
    return [
        name
        for name in names
        if not _NO_LAYERS.intersection(name.split("."))
        and (name.rpartition(".")[0] not in spaces or name.endswith(".in_proj"))
    ]


def expert_weights(model: PreTrainedModel) -> int:
    """How many weights are in experts that are no linear layers."""
    start = _prefix(model)
    named = model.named_parameters()
    return sum(each.numel() for name, each in named if each.dim() == _EXPERT_DIMENSIONS and name.startswith(start))


def freeze_other_parts(model: PreTrainedModel) -> None:
    """Freeze what tokens of text do not go through, such as the tower of an image; it has no gradient."""
    start = _prefix(model)
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # the same
    kept = {id(weight) for weight in head.parameters()} if isinstance(head, nn.Module) else set()
    for name, weight in model.named_parameters():
        if not name.startswith(start) and id(weight) not in kept:
            weight.requires_grad = False


def _prefix(model: PreTrainedModel) -> str:
    decoder = model.get_decoder()  # type: ignore[no-untyped-call]  # the same
    return next((f"{name}." for name, module in model.named_modules() if module is decoder and name), "")
