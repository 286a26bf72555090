"""Give the rollouts of a session to the exporters of traces, each once it has ended and once it is judged."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any

from nat.data_models.component_ref import ComponentGroup
from nat.data_models.evaluator import EvalOutput
from nat.data_models.telemetry_exporter import TelemetryExporterBaseConfig, TracingConfig
from nat.errors import ANY_FAILURE, ConfigError, NatError, describe_error
from nat.registry.catalog import current_catalog
from nat.rollout.rollout import Rollout
from nat.telemetry.attributes import Evaluation, Value
from nat.wire.extras import install_hint

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

    from nat.rollout.spans import RolloutSpan

logger = logging.getLogger(__name__)

_SECTION = ComponentGroup.EVAL_CALLBACKS
"""general.telemetry.tracing"""


@dataclass(frozen=True, slots=True)
class JudgedRollout:
    """What became known of a rollout after its end."""

    example: str
    seed: int | None
    """None if the record does not say which rollout of the example it is."""
    facts: Mapping[str, Value]
    evaluations: Sequence[Evaluation]


class Traces:
    """The spans of all rollouts of a command; without exporters, nothing happens."""

    def __init__(
        self, providers: Mapping["TracerProvider", float] | None = None, *, workflow: str = "workflow"
    ) -> None:
        """`providers` with the seconds that each may take at the end; `workflow` names the spans of rollouts."""
        self._providers = providers or {}
        self._tracers = [provider.get_tracer("nat") for provider in self._providers]
        self._workflow = workflow
        self._waiting: dict[str, list[tuple[int | None, list[RolloutSpan]]]] = {}
        self._failed = False

    def ended(self, rollout: Rollout, given: Any, *, is_judged: bool) -> None:
        """Send what is inside the rollout; with `is_judged`, its own span waits for `judged`."""
        if not self._tracers:
            return
        from nat.rollout.spans import rollout_spans

        try:
            spans = [rollout_spans(tracer, rollout, given, workflow=self._workflow) for tracer in self._tracers]
        except ANY_FAILURE as error:  # steps of plug-ins have any shape
            if not self._failed:
                self._failed = True
                logger.warning("%s: rollouts are left out: %s", _SECTION, describe_error(error))
            return
        if is_judged:
            self._waiting.setdefault(rollout.item_id, []).append((rollout.seed, spans))
        else:
            for span in spans:
                span.end({}, ())

    def judged(self, rollouts: Iterable[JudgedRollout]) -> None:
        """Send the spans of rollouts that wait for this; those that do not are left out."""
        if not self._waiting:
            return
        for each in rollouts:
            waiting = self._waiting.get(each.example, [])
            at = next((n for n, (seed, _) in enumerate(waiting) if each.seed is None or seed == each.seed), None)
            for span in () if at is None else waiting.pop(at)[1]:
                span.end(each.facts, each.evaluations)

    def evaluated(self, examples: Iterable[str], results: Sequence[tuple[str, EvalOutput]]) -> None:
        """Send the spans of an evaluation's rollouts with all scores that they have."""
        scores: dict[str, list[Evaluation]] = {}
        for name, output in results:
            for item in output.eval_output_items:
                scores.setdefault(str(item.id), []).append(Evaluation(name, item.score, item.reasoning))
        self.judged(JudgedRollout(example, None, {}, scores.get(example, ())) for example in examples)

    def close(self) -> None:
        """Send the spans of rollouts that nobody judged, and wait for the exporters."""
        self.judged([JudgedRollout(example, None, {}, ()) for example, kept in self._waiting.items() for _ in kept])
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
