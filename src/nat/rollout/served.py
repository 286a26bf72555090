"""Run the workflow for callers in other processes: with a limit of concurrency, a deadline, and a rollout's options."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from nat.builder.context import OnNext, RuntimeTypeEnum
from nat.builder.function import Function
from nat.builder.workflow import Workflow
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import CapturePolicy, ReplacedSampling, redirecting
from nat.data_models.config import Config
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.rollout_failure import RolloutFailure
from nat.http.errors import ApiError
from nat.rollout.rollout import Invocable, run_rollout
from nat.rollout.traces import Traces, opened_traces
from nat.wire.rollout import RolloutOptions

logger = logging.getLogger(__name__)

OnChunk = Callable[[Any], None]


@dataclass(frozen=True)
class ServedWorkflow:
    """One workflow; requests beyond the limit of concurrency wait."""

    function: Function
    slots: asyncio.Semaphore
    deadline: float | None
    """Seconds for one request after its wait for a free slot."""
    traces: Traces = field(default_factory=Traces)

    async def run(
        self,
        value: Any,
        options: RolloutOptions | None = None,
        *,
        on_step: OnNext | None = None,
        on_chunk: OnChunk | None = None,
    ) -> Rollout:
        """Run the workflow on one input; `on_chunk` streams its output, piece by piece.

        With `options` it is a rollout of another process, and runs as it would there.
        """
        workflow = Workflow(self.function)
        given = options or RolloutOptions(item_id=uuid.uuid4().hex)
        policy = CapturePolicy(
            logprobs=given.logprobs,
            token_ids=given.token_ids,
            seed=given.call_seed,
            replaced=None if given.temperature is None else ReplacedSampling(given.temperature, given.target_model),
        )
        async with self.slots:
            with redirecting() as redirects:
                for sent in given.redirects:
                    redirects.add(sent)
                rollout = await run_rollout(
                    workflow if on_chunk is None else _Streamed(workflow, on_chunk),
                    EvalInputItem(id=given.item_id, input_obj=value, expected_output_obj=None),
                    seed=given.seed,
                    generation=given.generation,
                    policy=policy,
                    deadline=self.deadline,
                    runtime_type=RuntimeTypeEnum.RUN_OR_SERVE if options is None else RuntimeTypeEnum.EVALUATE,
                    on_step=on_step,
                )
        self.traces.ended(rollout, value, is_judged=False)
        if rollout.error is not None:
            logger.warning("request %s failed: %s", given.item_id, rollout.error)
        return rollout


class _Streamed(Invocable):
    """Passes pieces on as they come; the output is the list of all pieces."""

    def __init__(self, workflow: Workflow, on_chunk: OnChunk) -> None:
        self._workflow = workflow
        self._on_chunk = on_chunk

    async def ainvoke(self, value: Any) -> list[Any]:
        chunks = []
        async for piece in self._workflow.astream(value):
            chunks.append(piece)
            self._on_chunk(piece)
            await asyncio.sleep(0)  # a workflow that has its pieces at hand never waits
        return chunks


def failure_error(failure: RolloutFailure) -> ApiError:
    """The error response for an exception of the workflow, or for its deadline."""
    status = HTTPStatus.GATEWAY_TIMEOUT if failure.kind == "timeout" else HTTPStatus.INTERNAL_SERVER_ERROR
    return ApiError(failure.message, status=status, type=failure.type)


@asynccontextmanager
async def opened_workflow(config: Config) -> AsyncIterator[ServedWorkflow]:
    """The workflow of a configuration, open until the block ends; without datasets and evaluators.

    Raises:
        ConfigError: it cannot be built.
        WorkflowError: there is none.

    """
    config = config.model_copy(update={"eval": config.eval.model_copy(update={"evaluators": {}})})
    general = config.eval.general
    tracing, name = config.general.telemetry.tracing, config.workflow.type
    async with opened_traces(tracing, workflow=name) as traces, WorkflowBuilder.from_config(config) as builder:
        slots = asyncio.Semaphore(general.max_concurrency)
        yield ServedWorkflow(builder.get_workflow(), slots, general.item_timeout, traces)
