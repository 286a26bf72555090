"""Rollouts, and the spans that they make, as OpenTelemetry's SDK has them."""

from datetime import UTC, datetime
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.intermediate_step import IntermediateStep
from nat.rollout.traces import Traces

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)


class CollectedTraces(Traces):
    """Traces with an exporter that keeps all spans."""

    def __init__(self, **options: Any) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider(span_limits=SpanLimits(max_span_attributes=SpanLimits.UNSET), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        super().__init__({provider: 10.0}, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._kept.get_finished_spans())

    @property
    def roots(self) -> list[ReadableSpan]:
        return [span for span in self.spans if span.parent is None]

    def of(self, name: str) -> list[Any]:
        """This attribute of each root."""
        return [span.attributes.get(name) for span in self.roots]


def rollout(item_id: str = "1", *, seed: int | None = 1, steps: list[IntermediateStep] = (), **fields: Any) -> Rollout:
    """A rollout of one second that answered `a`."""
    known = {"generation": 0, "output": "a", "error": None, "started_at": NOON, "seconds": 1.0}
    return Rollout(item_id=item_id, seed=seed, steps=list(steps), **known | fields)
