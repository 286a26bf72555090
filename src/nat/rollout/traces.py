"""Give the rollouts of a session to the exporters of traces, each once it has ended or is judged."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any

from nat.data_models.component_ref import ComponentGroup
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalOutput
from nat.data_models.telemetry_exporter import TelemetryExporterBaseConfig, TracingConfig
from nat.errors import ANY_FAILURE, ConfigError, NatError, describe_error
from nat.registry.catalog import current_catalog
from nat.wire.extras import install_hint

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

logger = logging.getLogger(__name__)

_SECTION = ComponentGroup.EVAL_CALLBACKS
"""general.telemetry.tracing"""


Scores = Sequence[tuple[str, Any, Any]]
"""The name of an evaluator, its score, and why."""


class Traces:
    """The spans of all rollouts of a command; without exporters, nothing happens."""

    def __init__(
        self, providers: Mapping["TracerProvider", float] | None = None, *, workflow: str = "workflow"
    ) -> None:
        """`providers` with the seconds that each may take at the end; `workflow` names the spans of rollouts."""
        self._providers = providers or {}
        self._tracers = [provider.get_tracer("nat") for provider in self._providers]
        self._workflow = workflow
        self._waiting: dict[str, list[tuple[Rollout, Any]]] = {}
        self._failed = False

    def ended(self, rollout: Rollout, given: Any, *, is_judged: bool) -> None:
        """Send a rollout of this input; with `is_judged`, it waits for `judged`."""
        if not is_judged:
            self._send(rollout, given, {}, ())
        elif self._tracers:
            self._waiting.setdefault(rollout.item_id, []).append((rollout, given))

    def judged(self, example: str, seed: int | None, facts: Mapping[str, Any], scores: Scores) -> None:
        """Send a rollout that waits for this; without a seed, the first one of the example."""
        waiting = self._waiting.get(example, [])
        at = next((n for n, (each, _) in enumerate(waiting) if seed is None or seed == each.seed), None)
        if at is not None:
            self._send(*waiting.pop(at), facts, scores)

    def evaluated(self, examples: Iterable[str], results: Sequence[tuple[str, EvalOutput]]) -> None:
        """Send an evaluation's rollouts with all scores that they have."""
        scores: dict[str, list[tuple[str, Any, Any]]] = {}
        for name, output in results:
            for item in output.eval_output_items:
                scores.setdefault(str(item.id), []).append((name, item.score, item.reasoning))
        for example in examples:
            self.judged(example, None, {}, scores.get(example, ()))

    def _send(self, rollout: Rollout, given: Any, facts: Mapping[str, Any], scores: Scores) -> None:
        if not self._tracers:
            return
        from nat.rollout.spans import send_spans

        try:
            for tracer in self._tracers:
                send_spans(tracer, rollout, given, workflow=self._workflow, facts=facts, scores=scores)
        except ANY_FAILURE as error:  # steps of plug-ins have any shape
            if not self._failed:
                self._failed = True
                logger.warning("%s: rollouts are left out: %s", _SECTION, describe_error(error))

    def close(self) -> None:
        """Send the rollouts that nobody judged, and wait for the exporters."""
        for rollout, given in (each for waiting in self._waiting.values() for each in waiting):
            self._send(rollout, given, {}, ())
        closing = [(Thread(target=each.shutdown, daemon=True), seconds) for each, seconds in self._providers.items()]
        for thread, _ in closing:
            thread.start()
        for thread, seconds in closing:
            thread.join(seconds)


@asynccontextmanager
async def opened_traces(
    tracing: Mapping[str, TelemetryExporterBaseConfig], *, workflow: str | None = None
) -> AsyncIterator[Traces]:
    """The exporters of `general.telemetry.tracing`, until the block ends.

    Raises:
        ConfigError: a package or a key is missing.

    """
    wanted = {name: config for name, config in tracing.items() if isinstance(config, TracingConfig)}
    async with AsyncExitStack() as stack:
        providers, findings, hints = dict["TracerProvider", float](), list[str](), list[str | None]()
        for name, config in wanted.items():
            build = current_catalog().component_of(_SECTION, config).build_fn
            try:
                exporter = await stack.enter_async_context(build(config, None))
                providers[_provider(exporter, config)] = config.shutdown_timeout
            except ModuleNotFoundError as error:
                findings.append(f"{_SECTION}.{name}: needs {error.name}, which is not installed")
                hints.append(install_hint("telemetry"))
            except NatError as error:
                findings.append(f"{_SECTION}.{name}: {error.message}")
                hints.append(error.hint)
            except OSError as error:
                findings.append(f"{_SECTION}.{name}: {describe_error(error)}")
        if findings:
            raise ConfigError(findings, hint=next(filter(None, hints), None))
        traces = Traces(providers, workflow=workflow or "workflow")
        try:
            yield traces
        finally:
            await asyncio.to_thread(traces.close)


def _provider(exporter: "SpanExporter", config: TracingConfig) -> "TracerProvider":
    """A provider of its own for each exporter, and none for the process."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    limits = SpanLimits(max_span_attributes=SpanLimits.UNSET)  # a conversation has any number of messages
    provider = TracerProvider(resource=Resource(config.resource), span_limits=limits, shutdown_on_exit=False)
    processor = BatchSpanProcessor(
        exporter,
        max_queue_size=config.max_queue_size,
        schedule_delay_millis=1000 * config.flush_interval,
        max_export_batch_size=min(config.batch_size, config.max_queue_size),
    )
    provider.add_span_processor(processor)
    return provider
