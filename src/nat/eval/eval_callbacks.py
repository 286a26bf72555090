"""Callbacks of an evaluation: what plug-ins do when it starts, after each answer and score, and at its end.

A callback that raises is logged and affects nothing else.
"""

import inspect
import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from nat.data_models.evaluate_runtime import UsageStats, UsageStatsItem
from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput
from nat.data_models.score import is_score
from nat.errors import ANY_FAILURE

logger = logging.getLogger(__name__)


@dataclass
class EvalResultItem:
    """One example: its question, its answer and all its scores."""

    item_id: Any
    input_obj: Any
    expected_output: Any
    actual_output: Any
    scores: dict[str, float]
    """By evaluator; one that has no number for this example is left out."""
    reasoning: dict[str, Any]
    total_tokens: int | None = None
    runtime: float | None = None
    """Seconds."""


@dataclass
class EvalResult:
    """A whole evaluation."""

    metric_scores: dict[str, float]
    """The mean of each evaluator that has one."""
    items: list[EvalResultItem]
    evaluation_outputs: list[tuple[str, EvalOutput]] = field(default_factory=list)
    workflow_output_json: str | None = None
    """The text of `workflow_output.json`, if it was written."""
    run_config: Any = None
    effective_config: Any = None
    output_dir: Path | None = None


class EvalCallback(Protocol):
    """The methods that a callback may have, each optional; those that begin with `a_` are awaited."""

    def on_dataset_loaded(self, *, dataset_name: str, items: list[EvalInputItem]) -> None: ...

    def on_eval_started(
        self, *, workflow_alias: str, eval_input: EvalInput, config: Any, job_id: str | None = None
    ) -> None: ...

    def evaluation_context(self) -> AbstractContextManager[Any]:
        """A block around all rollouts and scores."""

    def on_prediction(self, *, item: EvalInputItem, output: Any) -> None: ...

    async def a_on_usage_stats(self, *, item: EvalInputItem, usage_stats_item: UsageStatsItem) -> None: ...

    async def a_on_evaluator_score(self, *, eval_output: EvalOutput, evaluator_name: str) -> None: ...

    async def a_on_export_flush(self) -> None: ...

    def on_eval_summary(
        self, *, usage_stats: UsageStats, evaluation_results: list[tuple[str, EvalOutput]], profiler_results: Any
    ) -> None: ...

    def on_eval_complete(self, result: EvalResult) -> None: ...


class EvalCallbackManager:
    """Calls the same method of several callbacks."""

    def __init__(self, callbacks: Sequence[Any] = ()) -> None:
        self._callbacks = list(callbacks)

    def register(self, callback: Any) -> None:
        self._callbacks.append(callback)

    @property
    def has_callbacks(self) -> bool:
        return bool(self._callbacks)

    async def call(self, method: str, *args: Any, **kwargs: Any) -> None:
        """Call a method of each callback that has it, and await what can be awaited."""
        for callback in self._callbacks:
            with _failure_logged(callback, method):
                hook = getattr(callback, method, None)  # the toolkit's callbacks have any of the methods
                if hook is not None and inspect.isawaitable(result := hook(*args, **kwargs)):
                    await result

    @contextmanager
    def evaluation_context(self) -> Iterator[None]:
        """The blocks of all callbacks around the evaluation."""
        with ExitStack() as blocks:
            for callback in self._callbacks:
                logged = partial(_failure_logged, callback, "evaluation_context")
                with logged():
                    if (hook := getattr(callback, "evaluation_context", None)) is not None:
                        block = ExitStack()
                        block.enter_context(hook())
                        blocks.callback(logged()(block.close))
            yield


@contextmanager
def _failure_logged(callback: Any, method: str) -> Iterator[None]:
    """The boundary of one callback's method."""
    try:
        yield
    except ANY_FAILURE:
        logger.exception("%s of the callback %s failed", method, type(callback).__name__)


def build_eval_result(
    *,
    eval_input_items: Sequence[EvalInputItem],
    evaluation_results: list[tuple[str, EvalOutput]],
    metric_scores: dict[str, float],
    usage_stats: UsageStats | None = None,
    **context: Any,
) -> EvalResult:
    """Put the scores of each example together; `context` has further fields of the result."""
    usage = usage_stats.usage_stats_items if usage_stats is not None else {}
    scored = {name: {str(each.id): each for each in output.eval_output_items} for name, output in evaluation_results}
    items = []
    for item in eval_input_items:
        key = str(item.id)
        found = {name: by_id[key] for name, by_id in scored.items() if key in by_id}
        items.append(
            EvalResultItem(
                item_id=item.id,
                input_obj=item.input_obj,
                expected_output=item.expected_output_obj,
                actual_output=item.output_obj,
                scores={name: float(each.score) for name, each in found.items() if is_score(each.score)},
                reasoning={name: each.reasoning for name, each in found.items()},
                total_tokens=usage[key].total_tokens if key in usage else None,
                runtime=usage[key].runtime if key in usage else None,
            )
        )
    return EvalResult(metric_scores, items, evaluation_outputs=evaluation_results, **context)
