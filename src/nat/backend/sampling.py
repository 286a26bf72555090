"""The interface between the server and what samples for it: this process, or an engine in another one.

`nat.backend.inference.worker.Worker` samples here, with the weights that the learner trains.
"""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from nat.backend.inference.sequence import Request
from nat.backend.model import LoadedModel
from nat.errors import BackendError

T = TypeVar("T")


class SamplingEngine(Protocol):
    """Answers requests and runs what changes the weights; every method may be called from any thread.

    It fills the token ids, log probabilities and finish reasons of a request's sequences, and the version of the
    weights that sampled them. One request is answered by one version.
    """

    @property
    def loaded(self) -> LoadedModel:
        """The model with the weights with which the backend started: its tokenizer, context and vocabulary."""

    @property
    def scores_prompts(self) -> bool:
        """True if it obeys `prompt_logprobs` of a sequence's parameters."""

    @property
    def policy_version(self) -> str:
        """`name@step` of the weights that answer requests without a name."""

    def names(self) -> list[str]:
        """All served names; the first means the weights with which the backend started."""

    def knows(self, name: str) -> bool:
        """True if a request may use this name."""

    def submit(self, request: Request) -> None:
        """Queue a request, whose listener gets the answer; its prompts and new tokens fit the model."""

    def cancel(self, request: Request) -> None:
        """Drop a request whose client has disconnected; its listener gets no more events."""

    def run_exclusive(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the thread that owns the learner's model; first come, first served."""

    def updating(self) -> AbstractContextManager[None]:
        """Around an update, inside `run_exclusive`; what `serve` did not confirm is served no longer afterwards."""

    def serve(self, version: str) -> None:
        """Answer with the learner's weights, under this version; inside `updating`, after the update's checks."""

    def watch(self, on_failure: Callable[[BackendError], None]) -> None:
        """Have `on_failure` called once if the engine cannot answer any more; from another thread."""

    def close(self) -> None:
        """Fail what is unfinished, and end the engine."""
