"""The model that a policy is compared with: the weights that the backend started from."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel

from nat.backend.model import LoadedModel


class Reference:
    """The model that the KL term pulls towards: the weights that the backend started from.

    With LoRA it is the same model with its adapter switched off, else a second copy, which is loaded when first needed.
    """

    def __init__(self, policy: LoadedModel, load: Callable[[], PreTrainedModel]) -> None:
        self._policy = policy
        self._load = load
        self._frozen: PreTrainedModel | None = None

    @contextmanager
    def model(self) -> Iterator[PreTrainedModel]:
        """Give the reference model for the time of the block; call it without gradients."""
        if self._policy.peft is not None:
            with self._policy.peft.disable_adapter():
                yield self._policy.model
            return
        if self._frozen is None:
            self._frozen = self._load().requires_grad_(requires_grad=False)
        yield self._frozen
