"""The model that a policy is compared with: the weights that the backend, or a phase of training, started from."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from nat.backend.model import LoadedModel


class Reference:
    """The model that the KL term pulls towards: the weights that the backend, or the phase of training, started from.

    With LoRA it is the same model with its adapter switched off, or as it was when the phase began; else a second copy,
    which is loaded when first needed.
    """

    def __init__(self, policy: LoadedModel, load: Callable[[], PreTrainedModel]) -> None:
        self._policy = policy
        self._load = load
        self._frozen: PreTrainedModel | None = None
        self._adapter: dict[str, Tensor] = {}
        """The adapter's weights at the beginning of the phase; empty in the first one."""

    @torch.no_grad()
    def begin_here(self) -> None:
        """Make the current weights the reference."""
        if self._policy.peft is not None:
            self._adapter = {name: p.detach().clone() for name, p in self._policy.trainable_parameters().items()}
            return
        with self.model() as frozen:
            frozen.load_state_dict(self._policy.model.state_dict())

    @contextmanager
    def model(self) -> Iterator[PreTrainedModel]:
        """Give the reference model for the time of the block; call it without gradients."""
        if self._policy.peft is not None:
            with self._earlier_adapter() if self._adapter else self._policy.peft.disable_adapter():
                yield self._policy.model
            return
        if self._frozen is None:
            self._frozen = self._load().requires_grad_(requires_grad=False)
        yield self._frozen

    @contextmanager
    def _earlier_adapter(self) -> Iterator[None]:
        parameters = self._policy.trainable_parameters()
        current = {name: parameter.data for name, parameter in parameters.items()}
        try:
            for name, parameter in parameters.items():
                parameter.data = self._adapter[name]
            yield
        finally:
            for name, parameter in parameters.items():
                parameter.data = current[name]
