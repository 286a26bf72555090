"""What a scrape reads from the backend: its sampling engine, and the updates that it trained."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from nat.backend.inference.sequence import Request
from nat.backend.sampling import SamplingEngine
from nat.backend.training.job_table import JobTable
from nat.http.asgi import Scope
from nat.http.metrics import gauge, running_gauge, waiting_gauge
from nat.http.outcome import outcome_of


class BackendCollector(Collector):
    """Reads counts that other threads write; none of them waits for it."""

    def __init__(self, engine: SamplingEngine, jobs: JobTable | None) -> None:
        self._engine = engine
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """The load of the engine, the step of its weights, and the updates by how they ended."""
        load, (name, _, step) = self._engine.load(), self._engine.policy_version.rpartition("@")
        yield running_gauge([(name, load.running)])
        yield waiting_gauge([(name, load.waiting)])
        if load.cache_share is not None:
            text = "Share of --kv_cache_mb that running answers use, from 0 to 1."
            yield gauge("vllm:kv_cache_usage_perc", text, [(name, load.cache_share)])
        if step.isdecimal():
            yield gauge("nat_policy_step", "Optimizer steps behind the weights that answer.", [(name, int(step))])
        if self._jobs is not None:
            updates = CounterMetricFamily("nat_updates", "Updates of the weights, by their end.", labels=["status"])
            for status, count in self._jobs.ended.items():
                updates.add_metric([status.value], count)
            yield updates


def note(scope: Scope, request: Request) -> None:
    """Note what the engine has sampled for a request, finished or not."""
    outcome, sequences = outcome_of(scope), request.sequences
    outcome.prompt_tokens = sum(len(sequence.prompt_ids) for sequence in sequences)
    outcome.generated_tokens = sum(len(sequence.token_ids) for sequence in sequences)
    first = [sequence.first_token_at for sequence in sequences if sequence.first_token_at is not None]
    outcome.first_token_at = min(first, default=None)
    outcome.finish_reasons = [sequence.finish_reason for sequence in sequences if sequence.finish_reason is not None]
