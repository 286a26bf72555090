"""Two copies of the trained weights: one answers requests while the other is trained.

The tensors that answer requests stay at their place in memory, so what refers to them stays valid. A parameter points
to one of its copies at a time. Only the model thread uses a pair.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Weights = Mapping[str, Tensor]


class WeightPair:
    """The served weights, and further copies: the weights in training, and those before the last updates."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        version: str,
        finish_begun: Callable[[], None] = lambda: None,
        kept: int = 1,
    ) -> None:
        """`finish_begun` finishes all requests that have begun; `kept` updates can be looked back."""
        self._parameters = dict(parameters)
        self._served = {name: parameter.data for name, parameter in self._parameters.items()}
        self._second: Weights = {}
        self._finish_begun = finish_begun
        self._kept = kept
        self._first = version
        self.version = version
        """Version of the served weights; the owner sets it after an update."""
        self.earlier_weights: dict[str, Weights] = {}
        """The weights before the last updates by version, the oldest first; a failed update loses the oldest."""

    def lost(self, version: str) -> bool:
        """Whether a process that has ended served these weights, so that there is nothing to compare with."""
        (own, first), (name, step) = (each.rpartition("@")[::2] for each in (self._first, version))
        late = name == own and first.isdigit() and step.isdigit() and int(step) < int(first)
        return late and len(self.earlier_weights) < self._kept

    @contextmanager
    def training(self) -> Iterator[None]:
        """Train the second copy inside the block, then serve it and keep the weights before.

        If the block fails, the served weights do not change.
        """
        known = self.earlier_weights
        oldest = known.pop(next(iter(known))) if len(known) >= self._kept else None
        self._second = second = oldest or {name: torch.empty_like(data) for name, data in self._served.items()}
        with torch.no_grad():
            for name, served in self._served.items():
                second[name].copy_(served)
        with self._placed(second, then=self._served):
            yield
        with torch.no_grad():
            for name, served in self._served.items():
                before = served.clone()
                served.copy_(second[name])
                second[name].copy_(before)
        known.pop(self.version, None)  # an update that moved nothing left it
        known[self.version] = second

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
    def earlier(self, version: str) -> Iterator[None]:
        """Put these of the `earlier_weights` in place for the time of the block, between two updates."""
        with self._placed(self.earlier_weights[version], then=self._served):
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
