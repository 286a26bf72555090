"""Metrics of a server in Prometheus' text format, under vLLM's names where vLLM has one.

Each server has a registry of its own, since a process may have several. A request is counted once, at its end, on the
event loop; gauges are read when the page is.
"""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nat.http.asgi import App, Message, Receive, Scope, Send
from nat.http.outcome import RequestOutcome, cause_of, outcome_of

PATH = "/metrics"
PAGE_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_MODEL = ("model_name",)
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280)


class ServerMetrics:
    """The metrics that every server has; collectors add those of one kind of server."""

    def __init__(self) -> None:
        self.in_progress: set[RequestOutcome] = set()
        """The requests that have no complete response yet."""
        self._models: set[str] = set()
        self._registry = own = CollectorRegistry()
        seconds, first = "vllm:e2e_request_latency_seconds", "vllm:time_to_first_token_seconds"
        self._seconds = Histogram(seconds, "From request to answer.", _MODEL, buckets=_SECONDS, registry=own)
        self._first_token = Histogram(first, "To the first token.", _MODEL, buckets=_SECONDS, registry=own)
        self._prompt = Counter("vllm:prompt_tokens", "Tokens of prompts.", _MODEL, registry=own)
        self._generated = Counter("vllm:generation_tokens", "Sampled tokens.", _MODEL, registry=own)
        reasons = (*_MODEL, "finished_reason")
        self._success = Counter("vllm:request_success", "Finished answers.", reasons, registry=own)
        self._failed = Counter("nat_requests_failed", "Requests that failed, by cause.", ("cause",), registry=own)

    def add(self, collector: Collector) -> None:
        """Show what this reads, too."""
        self._registry.register(collector)

    def page(self) -> bytes:
        """The metrics as text."""
        return generate_latest(self._registry)

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show a number that each scrape reads."""
        Gauge(name, text, registry=self._registry).set_function(read)

    def running(self) -> Counts[str]:
        """The requests in progress, by the model or workflow that answers; 0 for one that answered earlier."""
        counts = Counts(dict.fromkeys(self._models, 0))
        counts.update(outcome.model for outcome in self.in_progress if outcome.model is not None)
        return counts

    def count(self, outcome: RequestOutcome, status: int, *, began: float) -> None:
        """Count a request that began at a time by `perf_counter`, and ended now with this status."""
        if (cause := outcome.cause or cause_of(status)) is not None:
            self._failed.labels(cause).inc()
        if (model := outcome.model) is None:
            return
        self._models.add(model)
        self._prompt.labels(model).inc(outcome.prompt_tokens)
        self._generated.labels(model).inc(outcome.generated_tokens)
        if cause is None:
            self._seconds.labels(model).observe(perf_counter() - began)
            for reason in outcome.finish_reasons:
                self._success.labels(model, reason).inc()
            if outcome.first_token_at is not None:
                self._first_token.labels(model).observe(outcome.first_token_at - began)


class InProgress(Collector):
    """The requests of a server that samples nothing itself; with `most` at a time, those beyond it wait."""

    def __init__(self, metrics: ServerMetrics, most: int | None = None) -> None:
        self._metrics = metrics
        self._most = most

    def collect(self) -> Iterator[Metric]:
        counts = self._metrics.running()
        most = sum(counts.values()) if self._most is None else self._most
        yield running_gauge((model, min(count, most)) for model, count in counts.items())
        if self._most is not None:
            yield waiting_gauge((model, max(0, count - most)) for model, count in counts.items())


class Metered:
    """Middleware that counts every request, also those that other middleware refuses; it is the outermost."""

    def __init__(self, app: App, metrics: ServerMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began, outcome = 0, perf_counter(), outcome_of(scope)

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        self._metrics.in_progress.add(outcome)
        try:
            await self._app(scope, receive, noted)
        except Exception:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            raise
        finally:
            self._metrics.in_progress.discard(outcome)
            self._metrics.count(outcome, status, began=began)


def gauge(name: str, text: str, values: Iterable[tuple[str, float]]) -> Metric:
    """A gauge by the name of a model or workflow."""
    found = GaugeMetricFamily(name, text, labels=_MODEL)
    for model, value in values:
        found.add_metric([model], value)
    return found


def running_gauge(values: Iterable[tuple[str, float]]) -> Metric:
    """The gauge of what is being answered."""
    return gauge("vllm:num_requests_running", "Requests that are being answered.", values)


def waiting_gauge(values: Iterable[tuple[str, float]]) -> Metric:
    """The gauge of what is not begun."""
    return gauge("vllm:num_requests_waiting", "Requests that wait for their turn.", values)
