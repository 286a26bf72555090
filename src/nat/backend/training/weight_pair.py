"""Two copies of the trained weights: one answers requests while the other is trained.

The tensors that answer requests stay at their place in memory, so what refers to them stays valid. A parameter points
to one of its two copies at a time. Only the model thread uses a pair.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Weights = Mapping[str, Tensor]


class WeightPair:
    """The served weights, and a second copy: the weights in training, or after an update those before it."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        version: str,
        finish_begun: Callable[[], None] = lambda: None,
    ) -> None:
        """`finish_begun` finishes all requests that have begun."""
        self._parameters = dict(parameters)
        self._served = {name: parameter.data for name, parameter in self._parameters.items()}
        self._second = {name: torch.empty_like(data) for name, data in self._served.items()}
        self._finish_begun = finish_begun
        self.version = version
        """Version of the served weights; the owner sets it after an update."""
        self.earlier_version: str | None = None
        """Version of the weights before the last update; None if that update failed or there was none."""

    @contextmanager
    def training(self) -> Iterator[None]:
        """Train the second copy inside the block, then serve it and keep the weights before.

        If the block fails, the served weights do not change.
        """
        self.earlier_version = None
        with torch.no_grad():
            for name, served in self._served.items():
                self._second[name].copy_(served)
        with self._placed(self._second, then=self._served):
            yield
        with torch.no_grad():
            for name, served in self._served.items():
                before = served.clone()
                served.copy_(self._second[name])
                self._second[name].copy_(before)
        self.earlier_version = self.version

    def finish_requests(self) -> None:
        """Finish the requests that have begun with the served weights, at the end of `training`."""
        with self.serving():
            self._finish_begun()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Put the served weights in place for the time of the block, inside of `training`."""
        with self._placed(self._served, then=self._second):
            yield

    @contextmanager
    def earlier(self) -> Iterator[None]:
        """Put the weights of `earlier_version` in place for the time of the block, between two updates."""
        assert self.earlier_version is not None, "there was no update"
        with self._placed(self._second, then=self._served):
            yield

    @contextmanager
    def _placed(self, weights: Weights, *, then: Weights) -> Iterator[None]:
        self._place(weights)
        try:
            yield
        finally:
            self._place(then)

    def _place(self, weights: Weights) -> None:
        for name, parameter in self._parameters.items():
            parameter.data = weights[name]
