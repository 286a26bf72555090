"""One rollout: its output or failure, steps, deadline and cancellation."""

import asyncio
import threading

import openai
import pytest

from nat.builder.context import Context
from nat.builder.threads import run_in_thread
from nat.capture.context import CapturePolicy, capture_context
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType, TraceMetadata
from nat.rollout.rollout import held_out_seed, run_rollout, training_seed


class Workflow:
    """A workflow that is one plain coroutine function."""

    def __init__(self, fn):
        self._fn = fn

    async def ainvoke(self, value):
        return await self._fn(value)


def item(item_id="a", question="q") -> EvalInputItem:
    return EvalInputItem(id=item_id, input_obj=question, expected_output_obj=None)


PLAIN = CapturePolicy()


async def played(fn, *, deadline=None, policy=PLAIN, seed=7, **options) -> Rollout:
    return await run_rollout(Workflow(fn), item(), seed=seed, policy=policy, deadline=deadline, **options)


def step(name: str, payload=None) -> IntermediateStepPayload:
    metadata = TraceMetadata(provided_metadata=payload)
    return IntermediateStepPayload(event_type=IntermediateStepType.CUSTOM_START, name=name, metadata=metadata)


@pytest.mark.parametrize("raised", [SystemExit(0), KeyboardInterrupt()])
@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_system_exit_fails_one_rollout(raised, in_thread):
    """`sys.exit(0)` in an agent ends neither the run nor the event loop, in any thread or task."""

    def quits():
        raise raised

    async def workflow(value):
        await run_in_thread(quits) if in_thread else quits()

    rollout = await played(workflow)
    assert (rollout.error.kind, rollout.error.type) == ("raised", type(raised).__name__)


async def test_an_exception_becomes_a_record():
    """A rollout whose workflow raises has a failure with type and message, and no output."""

    async def workflow(value):
        raise KeyError("board")

    rollout = await played(workflow, generation=3)
    assert rollout.output is None
    assert rollout.error is not None
    assert (rollout.error.kind, rollout.error.type, rollout.error.message) == ("raised", "KeyError", "'board'")
    assert (rollout.error.item_id, rollout.error.generation) == ("a", 3)


async def test_a_client_of_the_agent_s_own_is_named():
    """Its error would be taken for one of the YAML's model, whose server is another."""

    async def workflow(value):
        openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k", max_retries=0).models.list()

    rollout = await played(workflow)
    assert "sent to http://127.0.0.1:9/v1/models, by no captured call" in rollout.error.message


async def test_deadline_ends_a_rollout():
    """At the deadline the workflow is cancelled, and the record says so."""
    cancelled = asyncio.Event()

    async def workflow(value):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    rollout = await played(workflow, deadline=0.01)
    assert cancelled.is_set()
    assert rollout.error is not None
    assert rollout.error.kind == "timeout"
    assert "0.01 s (eval.general.item_timeout)" in rollout.error.message


async def test_cancellation_from_outside_is_raised():
    """Ctrl-C ends the rollout and is not recorded as a failure."""
    started = asyncio.Event()

    async def workflow(value):
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(played(workflow))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_steps_are_collected_in_order_without_copies():
    """The record has the pushed payloads themselves, including those before a failure."""
    payloads = [step("one", payload := {"big": []}), step("two")]

    async def workflow(value):
        for pushed in payloads:
            Context.get().intermediate_step_manager.push_intermediate_step(pushed)
        raise RuntimeError

    rollout = await played(workflow)
    assert [collected.payload for collected in rollout.steps] == payloads
    assert rollout.steps[0].payload is payloads[0]
    assert rollout.steps[0].metadata.provided_metadata is payload


async def test_steps_after_the_deadline_are_left_out():
    """A thread may outlive the deadline; the returned record does not change."""
    release, pushed = threading.Event(), threading.Event()

    async def workflow(value):
        manager = Context.get().intermediate_step_manager

        def late():
            release.wait(10)
            manager.push_intermediate_step(step("late"))
            pushed.set()

        threading.Thread(target=late, daemon=True).start()
        await asyncio.Event().wait()

    rollout = await played(workflow, deadline=0.01)
    release.set()
    await asyncio.to_thread(pushed.wait, 10)
    assert rollout.steps == []


async def test_the_workflow_sees_its_context():
    """Input, seed, purpose and capture policy are set inside the rollout and gone afterwards."""
    seen = {}

    async def workflow(value):
        context = Context.get()
        seen.update(seed=context.rollout_seed, message=context.input_message, evaluating=context.is_evaluating)
        capture = capture_context().rollout
        seen["policy"] = capture.policy if capture else None

    policy = CapturePolicy(logprobs=True, token_ids=True, seed=7)
    await played(workflow, policy=policy)
    assert seen == {"seed": 7, "message": "q", "evaluating": True, "policy": policy}
    assert capture_context().rollout is None


def test_seeds_are_the_same_in_every_process():
    """The numbers are fixed, so a run can be repeated later and elsewhere."""
    assert training_seed(0, 0, "a") == 1529513677
    assert held_out_seed(0, "a") == 537296285
