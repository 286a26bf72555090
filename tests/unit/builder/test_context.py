import asyncio

import pytest

from nat.builder.context import Context, ContextState
from nat.data_models.intermediate_step import IntermediateStepPayload


def custom(kind: str, **fields) -> IntermediateStepPayload:
    return IntermediateStepPayload(event_type=kind, name="custom", **fields)


def test_start_and_end_through_different_contexts_match():
    """`Context.get()` anywhere in a rollout gives the same stream."""
    with ContextState().active() as context:
        manager = context.intermediate_step_manager
        Context.get().intermediate_step_manager.push_intermediate_step(custom("CUSTOM_START", UUID="u"))
        assert manager.get_outstanding_step_count() == 1
        Context.get().intermediate_step_manager.push_intermediate_step(custom("CUSTOM_END", UUID="u"))
        assert manager.get_outstanding_step_count() == 0


async def test_an_end_has_the_function_of_its_start():
    """A stream that ends in another function belongs to the function that started it."""
    steps = []
    with ContextState().active() as context:
        manager = context.intermediate_step_manager
        manager.subscribe(steps.append)
        with context.push_active_function("a", input_data=None):
            manager.push_intermediate_step(custom("LLM_START", UUID="u"))
        with context.push_active_function("b", input_data=None):
            manager.push_intermediate_step(custom("LLM_END", UUID="u"))
    ends = [s for s in steps if s.event_type == "LLM_END"]
    assert ends[0].function_ancestry.function_name == "a"


async def test_parallel_rollouts_do_not_mix():
    """Concurrent rollouts in one loop have separate streams."""

    async def rollout(number: int) -> list[str]:
        names = []
        with ContextState(rollout_seed=number).active() as context:
            context.intermediate_step_manager.subscribe(lambda step: names.append(step.name))
            for _ in range(3):
                await asyncio.sleep(0)
                push = Context.get().intermediate_step_manager.push_intermediate_step
                push(IntermediateStepPayload(event_type="CUSTOM_START", name=str(Context.get().rollout_seed)))
        return names

    assert await asyncio.gather(*(rollout(i) for i in range(5))) == [[str(i)] * 3 for i in range(5)]


async def test_parallel_branches_are_siblings():
    """Two tasks of one function have the same parent span, whatever spans the other has open."""
    steps = []
    with ContextState().active() as context:
        context.intermediate_step_manager.subscribe(steps.append)

        async def branch(name: str) -> None:
            with Context.get().push_active_function(name, input_data=None):
                await asyncio.sleep(0)

        with context.push_active_function("parent", input_data=None):
            await asyncio.gather(branch("a"), branch("b"))
    parent, *rest = steps
    starts = [s for s in rest if s.event_type == "FUNCTION_START"]
    assert [s.parent_id for s in starts] == [parent.UUID, parent.UUID]
    assert {s.function_ancestry.parent_name for s in starts} == {"parent"}


def test_subscriptions_end():
    """After unsubscribing or completion nothing arrives; the end is reported once."""
    steps, told = [], []
    with ContextState().active() as context:
        manager = context.intermediate_step_manager
        first = manager.subscribe(steps.append)
        first.unsubscribe()
        first.unsubscribe()
        manager.subscribe(lambda _: None, on_error=told.append, on_complete=lambda: told.append("done"))
        manager.push_intermediate_step(custom("CUSTOM_START"))
        manager.complete()
        manager.complete()
        failure = ValueError("x")
        manager.subscribe(steps.append, on_error=told.append)
        manager.complete(failure)
    assert steps == []
    assert told == ["done", failure]


def test_a_reward_is_a_step_of_the_function_that_gives_it():
    """A reward is a step of the current function with its number; it may name another step."""
    steps = []
    with ContextState().active() as context, context.push_active_function("f", input_data=None):
        context.intermediate_step_manager.subscribe(steps.append)
        Context.get().reward(1)
        Context.get().reward(-0.5, step="an earlier one", name="too slow")
    assert [(s.event_type.value, s.name, s.metadata, s.function_ancestry.function_name) for s in steps[:2]] == [
        ("CUSTOM_END", "reward", {"reward": 1.0}, "f"),
        ("CUSTOM_END", "too slow", {"reward": -0.5, "reward_step": "an earlier one"}, "f"),
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_is_a_number(value):
    """A reward that is no number raises at once, not at the end of the rollout."""
    with ContextState().active() as context, pytest.raises(ValueError, match="a finite number"):
        context.reward(value)
