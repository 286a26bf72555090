"""Rollouts and spans for exporters, made from a few arguments."""

from datetime import UTC, datetime
from typing import Any

from nat.data_models.intermediate_step import IntermediateStep
from nat.rollout.rollout import Rollout
from nat.telemetry import names
from nat.telemetry.rollout_spans import EndedRollout, Evaluation, rollout_span
from nat.telemetry.span import Span

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)


def ended(**fields: Any) -> EndedRollout:
    """A rollout of one second."""
    known = {"trace_id": 7, "workflow": "agent", "given": "q", "output": "a", "error": None, "facts": {}}
    began = NOON.timestamp()
    return EndedRollout(**known | {"started": began, "ended": began + 1} | fields)


def root(number: int = 0, *evaluations: Evaluation, **facts: Any) -> Span:
    """The span of rollout `number`."""
    return rollout_span(ended(trace_id=1000 + number), {names.EXAMPLE_ID: str(number), **facts}, evaluations)


def rollout(item_id: str, *, seed: int | None = 1, steps: list[IntermediateStep] = (), **fields: Any) -> Rollout:
    """A rollout that answered `a`."""
    known = {"generation": 0, "output": "a", "error": None, "started_at": NOON, "seconds": 1.0}
    return Rollout(item_id=item_id, seed=seed, steps=list(steps), **known | fields)
