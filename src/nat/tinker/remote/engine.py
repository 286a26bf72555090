"""The sampling engine that is a Tinker server: requests are sent by token ids, and go on while it trains."""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Sequence_
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from nat.backend.inference.sequence import Delta, Request, Sequence
from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.loss import ByRow
from nat.errors import BackendError, EngineFailed
from nat.http.errors import ApiError
from nat.tinker.remote.learner import at_targets
from nat.tinker.remote.service import Sampler

T = TypeVar("T")
_SEEDS = 2**31
"""Servers take seeds of 31 bits."""
_MODEL = "set `model` to a folder with the tokenizer of `base_model`"


class RemoteEngine:
    """A `SamplingEngine` whose tokens come from a Tinker server."""

    scores_prompts = False

    def __init__(self, loaded: LoadedModel, version: str, newest: Callable[[], Sampler], *, at_a_time: int) -> None:
        """`newest` gives the weights to serve: those at the start, and those after each update."""
        self.loaded, self.policy_version = loaded, version
        self._newest, self._sampler = newest, newest()
        self._next = self._sampler
        self._model, self._calls = ThreadPoolExecutor(1, "model"), ThreadPoolExecutor(at_a_time, "sampling")
        self._open: set[Request] = set()

    def names(self) -> list[str]:
        """The model's plain name, which always means the newest weights, and `name@step`."""
        return [self.policy_version.rpartition("@")[0], self.policy_version]

    def knows(self, name: str) -> bool:
        return name in self.names()

    def submit(self, request: Request) -> None:
        if any(sequence.params.top_logprobs for sequence in request.sequences):
            raise ApiError("a Tinker server reports no alternatives of tokens", param="top_logprobs")
        sampler, request.policy_version = self._sampler, self.policy_version
        self._open.add(request)
        self._calls.submit(self._answer, request, sampler)

    def cancel(self, request: Request) -> None:
        """Drop a request; what the server samples for it is lost."""
        self._open.discard(request)

    def run_exclusive(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the thread that trains; requests always go on beside it."""
        return self._model.submit(function)

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Around an update; until `serve`, requests get the weights before it."""
        self._next = self._sampler
        yield

    def score(self, loaded: LoadedModel, rows: Sequence_[Row]) -> ByRow:
        """Take over the learner's weights, and score rows with them on the path that answers requests."""
        del loaded  # the model that is taken over
        self._next = self._newest()
        return {row.index: at_targets(row, self._next.score([*row.input_ids, row.targets[-1]])) for row in rows}

    def renew(self) -> None:
        """Sample from the newest weights: the server has opened them again."""
        self._next = self._sampler = self._newest()

    def serve(self, version: str) -> None:
        """Answer new requests with the weights that were taken over, under this version."""
        self._sampler, self.policy_version = self._next, version

    def watch(self, on_failure: Callable[[BackendError], None]) -> None:
        """Each request says that the server does not answer; it may come back."""

    def close(self) -> None:
        """Fail what is unfinished, and end the threads."""
        self._calls.shutdown(wait=False, cancel_futures=True)
        for request in list(self._open):
            self._end(request, BackendError("the backend was shut down before it had answered"))
        self._model.shutdown(cancel_futures=True)

    def _answer(self, request: Request, sampler: Sampler) -> None:
        try:
            for sequence in request.sequences:
                self._sample(sequence, sampler)
        except Exception as error:  # noqa: BLE001 - the boundary of a request: its failure goes to its listener
            self._end(request, error)
        else:
            self._end(request)

    def _end(self, request: Request, error: BaseException | None = None) -> None:
        if request not in self._open:
            return  # it was canceled
        self._open.discard(request)
        if error is not None:
            request.listener.on_failed(error)
            return
        if request.stream:
            request.listener.on_deltas([Delta.newest(each, len(each.token_ids)) for each in request.sequences])
        request.listener.on_finished()

    def _sample(self, sequence: Sequence, sampler: Sampler) -> None:
        """Ends of a turn are stop ids, since some servers sample beyond them; stop texts are found here."""
        params, ends = sequence.params, self.loaded.eos_token_ids
        tokens, logprobs, stopped = sampler.sample(
            sequence.prompt_ids,
            max_tokens=params.max_tokens,
            seed=params.seed % _SEEDS,
            stop=sorted(params.stop_token_ids | (frozenset() if params.ignore_eos else ends)),
            temperature=params.temperature,
            top_p=params.top_p,
        )
        known = range(self.loaded.vocab_size)
        if unknown := [token_id for token_id in tokens if token_id not in known]:
            raise EngineFailed(f"the Tinker server sampled a token {unknown[0]} of {len(known)}", hint=_MODEL)
        for token_id, logprob in zip(tokens, logprobs, strict=True):
            sequence.add(token_id, logprob, [], ends)
            if sequence.finish_reason is not None:
                return
        sequence.finish_reason = "stop" if stopped else "length"
