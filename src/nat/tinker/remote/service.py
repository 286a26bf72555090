"""A Tinker server, by the official client; only this module knows the client.

Some of its releases from 0.25 on answer a call with a client, others with a future of one. Its errors become ours.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx

from nat.errors import BackendError, EngineFailed, describe_error
from nat.http.client import blocking_client
from nat.tinker.options import TinkerRemoteOptions
from nat.wire.numbers import is_logprob
from nat.wire.training import CHECK_CALLS, CHECK_TOKENS, TRAINED_CALLS, TRAINED_TOKENS

logger = logging.getLogger(__name__)

_REQUEST_SECONDS, _DELETE_SECONDS = 600.0, 10.0
_SAVED = re.compile(r"tinker://([\w:-][\w:.-]*)/((?:sampler_)?weights/[\w-][\w.-]*)", re.ASCII)
_NO_ARCHIVES = {404, 405, 501}
"""Answers of a server that has none."""
_GOES_ON = "look at its log; `nat finetune --resume` goes on from the last state"
_ONE_CLIENT = (
    "the server may train adapters only, so set `lora: {rank: 16}` of the LLM; or it has all weights of another client "
    "still, which it forgets minutes after that has ended: try again later"
)


class Datum(NamedTuple):
    """A row: T input tokens, and T values for each input of its loss."""

    token_ids: Sequence[int]
    inputs: Mapping[str, Sequence[float]]


class Sampler:
    """Weights that sample; callable from any thread."""

    def __init__(self, client: Any, types: Any, sent: Counter[str] | None = None) -> None:
        """`sent` counts the requests and tokens of checks."""
        self._client, self._types = _ready(client), types
        self._sent: Counter[str] = Counter() if sent is None else sent

    def sample(self, prompt_ids: Sequence[int], **params: Any) -> tuple[list[int], list[float], bool]:
        """Give tokens, their log probabilities at temperature 1, and whether the answer ended by itself."""
        with _calling("sampling"):
            prompt, wanted = self._types.ModelInput.from_ints(list(prompt_ids)), self._types.SamplingParams(**params)
            [found] = self._client.sample(prompt, 1, wanted).result().sequences
            tokens = list(found.tokens)
            return tokens, _numbers(filter(is_logprob, found.logprobs), len(tokens)), found.stop_reason == "stop"

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Give the log probability of each token after the first."""
        self._sent.update({CHECK_CALLS: 1, CHECK_TOKENS: len(token_ids)})
        with _calling("scoring"):
            found = self._client.compute_logprobs(self._types.ModelInput.from_ints(list(token_ids))).result()
            return _numbers(found[1 - len(token_ids) :], len(token_ids) - 1)  # some servers leave the first token out


class Service(NamedTuple):
    """A server, and the base model on it."""

    client: Any
    types: Any
    options: TinkerRemoteOptions
    transport: httpx.BaseTransport | None = None
    """Of downloads."""

    @property
    def key(self) -> dict[str, str]:
        """The header with the key."""
        key = self.options.tinker_api_key
        return {} if key is None else {"X-API-Key": key.get_secret_value()}

    def http(self) -> httpx.Client:
        """A client for what the official one cannot do."""
        address = f"{self.options.tinker_url.rstrip('/')}/api/v1"
        known = {"headers": self.key, "transport": self.transport, "base_url": address}
        return blocking_client(timeout=_REQUEST_SECONDS, **known)

    def base(self) -> Sampler:
        """The base model without an adapter."""
        with _calling("create_sampling_client"):
            return Sampler(self.client.create_sampling_client(base_model=self.options.base_model), self.types)


class Trained:
    """An adapter on a server, or with rank 0 all weights of a model, and where its newest state is saved there.

    A server has all weights of one model only, so that one is given back before it is opened again.
    """

    def __init__(self, service: Service, *, rank: int, seed: int = 0) -> None:
        """Open nothing yet: `begin` or `resume` follows if something is trained."""
        self.service, self.rank, self._seed = service, rank, seed
        self._client: Any = None
        self.on_reopened: Callable[[], None] = lambda: None
        """Called when a model was given back and opened again: what sampled from it may be gone."""
        self._has_archives = True
        self.state = ""
        self.saved: set[str] = set()
        """States that were saved, and are there still."""
        self.sent: Counter[str] = Counter()
        """Requests and tokens of updates, by the names of their metrics."""

    def begin(self, state: str | None = None, *, save: bool = True) -> "Trained":
        """Begin with the base's weights, or with saved ones and a new optimizer; a trial saves none."""
        client, base = self.service.client, self.service.options.base_model
        with self._opening(f"making an adapter of rank {self.rank}" if self.rank else "opening all weights, as rank 0"):
            if state is None:
                self._client = _ready(client.create_lora_training_client(base, rank=self.rank, seed=self._seed))
            else:
                self._client = _ready(client.create_training_client_from_state(state))
        if save:
            self.save()
            self._check_kind()
        return self

    def resume(self, state: str) -> None:
        """Go on from a saved state as if nothing had stopped."""
        with self._opening(f"reopening {state}"):
            self._client = _ready(self.service.client.create_training_client_from_state_with_optimizer(state))
        self.state = state
        self._check_kind()

    @contextmanager
    def _opening(self, what: str) -> Iterator[None]:
        again = self._client is not None
        self.close()
        with _calling(what, _GOES_ON if self.rank else _ONE_CLIENT):
            yield
        if again and not self.rank:
            self.on_reopened()

    def close(self) -> None:
        """Give all weights back; servers forget adapters by themselves, as they hold many."""
        if self._client is None or self.rank:
            return
        with suppress(httpx.HTTPError), self.service.http() as http:  # what opens them next says if they were kept
            http.post("/unload_model", json={"model_id": self._client.model_id})
        self._client = None

    @contextmanager
    def trial(self, *, rank: int) -> Iterator["Trained"]:
        """What leaves no trace: an adapter of this rank, which is dropped, or all weights, which are then reopened."""
        if self.rank or not self.state:
            trial = Trained(self.service, rank=rank if self.rank else 0).begin(save=False)
            try:
                yield trial
            finally:
                trial.close()
            return
        try:
            yield self
        finally:
            self.resume(self.state)

    def _check_kind(self) -> None:
        """Raise EngineFailed for an adapter in place of all weights, or the reverse."""
        with _calling(f"describing {self.state}"):
            info = self.service.client.create_rest_client().get_weights_info_by_tinker_path(self.state).result()
        if info.is_lora != (self.rank > 0):
            kind, wanted = ("an adapter", "all weights") if info.is_lora else ("all weights", "an adapter")
            raise EngineFailed(
                f"the Tinker server trains {kind}, where {wanted} were asked for (rank {self.rank}): {self.state}",
                hint="`lora: {rank: 16}` of the LLM trains an adapter, `lora: null` all weights",
            )

    def save(self) -> None:
        """Save weights and optimizer."""
        with _calling("save_state"):
            self.state = str(self._client.save_state(uuid4().hex).result().path)
            self.saved.add(self.state)

    def keep_only(self, states: set[str]) -> None:
        """Delete the other states that were saved; the newest stays."""
        for state in self.saved - states - {self.state}:
            self._delete(state)
            self.saved.remove(state)

    def forward_backward(
        self, data: Sequence[Datum], loss: str, config: Mapping[str, float], *, gradient: bool = True
    ) -> list[list[float]]:
        """Add a loss's gradient to that of the next step; gives the T log probabilities of each row's targets."""
        with _calling(f"the loss {loss}"):
            calls, tokens = (TRAINED_CALLS, TRAINED_TOKENS) if gradient else (CHECK_CALLS, CHECK_TOKENS)
            self.sent.update({calls: 1, tokens: sum(len(datum.token_ids) for datum in data)})
            call = self._client.forward_backward if gradient else self._client.forward
            found = call(list(map(self._sent, data)), loss, dict(config) or None).result().loss_fn_outputs
            sizes = [len(datum.token_ids) for datum in data]
            return [_numbers(each["logprobs"].data, size) for each, size in zip(found, sizes, strict=True)]

    def step(self, **adam: float) -> float:
        """Take a step with these `AdamParams`; gives the gradient's norm before clipping."""
        with _calling("optim_step"):
            found = self._client.optim_step(self.service.types.AdamParams(**adam)).result().metrics or {}
        norm = next((value for name, value in found.items() if name.endswith("grad_norm")), None)
        if norm is None:
            raise EngineFailed(
                f"the Tinker server reports no norm of the gradient: optim_step has the metrics {sorted(found)}",
                hint="without it, its normalisation is not known; use a server that reports it, such as SkyRL or ours",
            )
        return float(norm)

    def sampler(self) -> Sampler:
        """Save the current weights for sampling."""
        with _calling("saving weights for sampling"):
            return Sampler(self._client.save_weights_and_get_sampling_client(), self.service.types, self.sent)

    def download(self, target: Path) -> bool:
        """Write a tar archive of the current weights; False if the server gives none."""
        if not self._has_archives:
            return False
        with _calling("downloading weights"), ExitStack() as stack:
            path = self._client.save_weights_for_sampler(uuid4().hex).result().path
            run, *_, name = path.removeprefix("tinker://").split("/")
            http = stack.enter_context(self.service.http())
            answer = stack.enter_context(http.stream("GET", f"/training_runs/{run}/checkpoints/{name}/archive"))
            if answer.has_redirect_location:  # to a signed address, which must not see the key
                signed = httpx.Request("GET", answer.url.join(answer.headers["location"]))
                answer = http.send(signed, stream=True)
                stack.callback(answer.close)
            if answer.is_success:
                with target.open("wb") as file:
                    file.writelines(answer.iter_bytes())
            self._delete(path)
        if not answer.is_success:
            self._has_archives = answer.status_code not in _NO_ARCHIVES
            if self._has_archives:
                logger.warning("no archive of %s, as the server answered %d", path, answer.status_code)
        return answer.is_success

    def _delete(self, path: str) -> None:
        if (found := _SAVED.fullmatch(path)) is None:  # a run's folder may be of others, and the key opens more
            return
        with suppress(httpx.HTTPError), self.service.http() as http:  # it stays there where a server cannot
            http.delete(f"/training_runs/{found[1]}/checkpoints/{found[2]}", timeout=_DELETE_SECONDS)

    def _sent(self, datum: Datum) -> Any:
        types = self.service.types
        tensors = {
            name: types.TensorData(data=list(own), dtype="int64" if name == "target_tokens" else "float32")
            for name, own in datum.inputs.items()
        }
        return types.Datum(model_input=types.ModelInput.from_ints(list(datum.token_ids)), loss_fn_inputs=tensors)


def connect(options: TinkerRemoteOptions) -> Service:
    """Connect to a server, and check that it has the base model; EngineFailed if it has not, or does not answer."""
    import tinker

    url, key = options.tinker_url.rstrip("/"), options.tinker_api_key
    with _calling(f"connecting to {url}", "look at its log, and at the key of the LLM, `api_key` or TINKER_API_KEY"):
        client = tinker.ServiceClient(base_url=url, api_key=None if key is None else key.get_secret_value())
        names = [str(each.model_name) for each in client.get_server_capabilities().supported_models]
    if options.base_model not in names:  # some servers take any name, and train the model that they have
        raise EngineFailed(
            f"the Tinker server at {url} has no base model {options.base_model!r}; it has {', '.join(names) or 'none'}",
            hint="set `base_model` of the LLM to one of them, and `model` to a folder with its tokenizer",
        )
    return Service(client, tinker.types, options)


def _numbers(logprobs: Iterable[Any], size: int) -> list[float]:
    found = list(map(float, logprobs))
    if len(found) != size:
        raise ValueError(f"it gave {len(found)} log probabilities for {size} tokens")
    return found


def _ready(client: Any) -> Any:
    return client.result() if hasattr(client, "result") else client


@contextmanager
def _calling(what: str, hint: str = _GOES_ON) -> Iterator[None]:
    """Name what has failed, in place of the client's many kinds of errors."""
    try:
        yield
    except BackendError:
        raise
    except Exception as error:
        raise EngineFailed(
            f"the Tinker server failed at {what}: {describe_error(error)}",
            hint=hint,
        ) from error
