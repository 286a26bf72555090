"""Give the rollouts of a session to the exporters of traces, each once it has ended and once it is judged."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nat.data_models.component_ref import ComponentGroup
from nat.data_models.evaluator import EvalOutput
from nat.data_models.telemetry_exporter import TelemetryExporterBaseConfig, TracingConfig
from nat.errors import ConfigError, NatError, describe_error
from nat.registry.catalog import current_catalog
from nat.rollout.rollout import Rollout
from nat.telemetry import names
from nat.telemetry.rollout_spans import EndedRollout, Evaluation, inner_spans, num_inside, rollout_span
from nat.telemetry.sender import Make, SpanQueue
from nat.telemetry.span import Value, text

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

    def __init__(self, senders: Sequence[SpanQueue] = (), *, workflow: str = "workflow") -> None:
        """`workflow` is the name that the spans of rollouts have."""
        self._senders = tuple(senders)
        self._workflow = workflow
        self._waiting: dict[str, list[tuple[int | None, EndedRollout]]] = {}

    def ended(self, rollout: Rollout, given: Any, *, is_judged: bool) -> None:
        """Send what is inside the rollout; with `is_judged`, its own span waits for `judged`."""
        if not self._senders:
            return
        began = rollout.started_at.timestamp()
        kept = EndedRollout(
            trace_id=uuid.uuid4().int,
            workflow=self._workflow,
            started=began,
            ended=began + rollout.seconds,
            given=given,
            output=rollout.output,
            error=None if rollout.error is None else str(rollout.error),
            facts=_known(rollout),
        )
        self._add(num_inside(rollout.steps), lambda: inner_spans(kept, rollout.steps))
        if is_judged:
            self._waiting.setdefault(rollout.item_id, []).append((rollout.seed, kept))
        else:
            self._add(1, lambda: [rollout_span(kept, {}, ())])

    def judged(self, rollouts: Iterable[JudgedRollout]) -> None:
        """Send the spans of rollouts that wait for this; those that do not are left out."""
        if not self._waiting:
            return
        found = [(kept, each) for each in rollouts if (kept := self._taken(each.example, each.seed)) is not None]
        if found:
            make = [(kept, each.facts, each.evaluations) for kept, each in found]
            self._add(len(make), lambda: [rollout_span(*each) for each in make])

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
        for sender in self._senders:
            sender.close()

    def _taken(self, example: str, seed: int | None) -> EndedRollout | None:
        waiting = self._waiting.get(example, [])
        at = next((n for n, (own, _) in enumerate(waiting) if seed is None or own == seed), None)
        if at is None:
            return None
        _, kept = waiting.pop(at)
        if not waiting:
            del self._waiting[example]
        return kept

    def _add(self, count: int, make: Make) -> None:
        for sender in self._senders if count else ():
            sender.add(count, make)


def _known(rollout: Rollout) -> Mapping[str, Value]:
    seed = {} if rollout.seed is None else {names.SEED: rollout.seed}
    return {names.EXAMPLE_ID: text(rollout.item_id), names.GENERATION: rollout.generation, **seed}


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
        exporters, findings, hints = {}, [], []
        for name, config in wanted.items():
            build = current_catalog().component_of(_SECTION, config).build_fn
            try:
                exporters[name] = await stack.enter_async_context(build(config, None))
            except NatError as error:
                findings.append(f"{_SECTION}.{name}: {error.message}")
                hints.append(error.hint)
            except OSError as error:
                findings.append(f"{_SECTION}.{name}: {describe_error(error)}")
        if findings:
            raise ConfigError(findings, hint=next(filter(None, hints), None))
        senders = [SpanQueue(name, exporter, wanted[name].batching) for name, exporter in exporters.items()]
        traces = Traces(senders, workflow=workflow or "workflow")
        try:
            yield traces
        finally:
            await asyncio.to_thread(traces.close)
