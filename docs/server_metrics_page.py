"""The page `reference/server_metrics.md`: what `/metrics` of each server has, by what a few requests leave there."""

from collections.abc import Iterator
from time import perf_counter

from prometheus_client.parser import text_string_to_metric_families

from nat.backend.inference.sequence import EngineLoad
from nat.backend.server.metrics import BackendCollector
from nat.backend.training.job_table import JobTable
from nat.http.metrics import InProgress, ServerMetrics
from nat.http.outcome import RequestOutcome
from nat.wire.training import JobStatus

HEAD = """\
# Metrics of the servers

`nat backend serve`, `nat gateway serve` and `nat serve` answer `GET /metrics` in Prometheus' text format. The names are
vLLM's where vLLM has one, so its dashboards show these servers, too; the label `model_name` is the model's name, for
`nat serve` the workflow's.

```text
# prometheus.yml
scrape_configs:
  - job_name: nat
    authorization: {credentials: choose-a-long-one}
    static_configs: [{targets: ["localhost:8000"]}]
```

The page needs the server's key, as a bearer token. `nat serve` without a key, and a backend with a key that everybody
knows (ART's), admit this machine, and no web page of another site. The gateway's page needs the key of its owner.

`make docs` makes this table from the code.

| name | type | servers | meaning |
|---|---|---|---|
"""
NOTES = """
In the backend, requests in progress are sequences, and each choice (`n`) counts its prompt. Sampled tokens of canceled
requests count; latencies leave failed requests out. Without a bound on keys and values, their share is absent.

The `cause` of a failed request is the name of its HTTP status in small letters, also for a stream that broke off after
it had begun; `client disconnected`; and in `nat serve` the workflow's error or deadline. Counters begin at 0 with each
process. With `engine: vllm`, vLLM's own `/metrics` has its cache. An ART server counts the updates of all its models,
and `nat_policy_step` is that of its base. A scrape waits for no step of the model and no update.
"""


class _Engine:
    """The load of an engine with a request that runs and one that waits."""

    policy_version = "model@1"

    def load(self) -> EngineLoad:
        return EngineLoad(running=1, waiting=1, cache_share=0.5)


def server_metrics_page() -> str:
    """A row per metric, with the servers that report it."""
    servers = {"backend": _backend(), "gateway": _gateway(), "`nat serve`": _front_end()}
    found = {server: dict(_reported(metrics)) for server, metrics in servers.items()}
    names = dict.fromkeys(name for rows in found.values() for name in rows)
    rows = []
    for name in names:
        having = [server for server, own in found.items() if name in own]
        kind, text = found[having[0]][name]
        rows.append(f"| `{name}` | {kind} | {', '.join(having)} | {text} |\n")
    return HEAD + "".join(rows) + NOTES


def _backend() -> ServerMetrics:
    metrics, jobs = ServerMetrics(), JobTable()
    jobs.ended[JobStatus.COMPLETED] += 1
    metrics.add(BackendCollector(_Engine(), jobs))  # type: ignore[arg-type] # it reads the load and the version alone
    began = perf_counter()
    answer = RequestOutcome("model", 1, 1, first_token_at=began + 1, finish_reasons=["stop"])
    return _asked(metrics, answer)


def _gateway() -> ServerMetrics:
    metrics = ServerMetrics()
    metrics.add(InProgress(metrics))
    metrics.watch("nat_open_rollouts", "Rollouts that are open.", lambda: 1)
    return _asked(metrics, RequestOutcome("model"))


def _front_end() -> ServerMetrics:
    metrics = ServerMetrics()
    metrics.add(InProgress(metrics, 1))
    return _asked(metrics, RequestOutcome("workflow", 1, 1))


def _asked(metrics: ServerMetrics, answer: RequestOutcome) -> ServerMetrics:
    """After an answer and a failure, with two more requests open."""
    metrics.count(answer, 200, began=perf_counter() - 1)
    metrics.count(RequestOutcome(), 404, began=perf_counter())
    metrics.in_progress |= {RequestOutcome(answer.model), RequestOutcome(answer.model)}
    return metrics


def _reported(metrics: ServerMetrics) -> Iterator[tuple[str, tuple[str, str]]]:
    """Type and text of what is not zero."""
    for family in text_string_to_metric_families(metrics.page().decode()):
        if any(sample.value > 0 for sample in family.samples if not sample.name.endswith("_created")):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield name, (family.type, family.documentation)
