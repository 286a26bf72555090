"""A session runs items through one open workflow and informs its listeners."""

import asyncio
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fakes.scripted_workflow import ScriptedWorkflow
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import CapturePolicy, capture_context
from nat.config.load import load_config
from nat.data_models.evaluator import EvalInputItem
from nat.rollout.session import WorkflowSession, current_session, using_session


def item(item_id: str, question: str = "q") -> EvalInputItem:
    return EvalInputItem(id=item_id, input_obj=question, expected_output_obj=None)


async def fails_on_b(question: str):
    if question == "b":
        raise ValueError(question)
    return question


@asynccontextmanager
async def session_of(scripted: ScriptedWorkflow, **options):
    with scripted.registered():
        path = scripted.config_file
        config = load_config(path)
        async with WorkflowBuilder.from_config(config) as builder:
            yield WorkflowSession(config, builder, config_file=path, **options)


async def test_a_training_session_requests_exact_tokens_and_seeds_calls(tmp_path: Path):
    """Other sessions request nothing beyond the agent's request."""
    policies = []

    async def look(question: str):
        policies.append(capture_context().rollout.policy)
        return question

    async with session_of(ScriptedWorkflow(tmp_path, look, []), training=True) as session:
        assert (await session.run(item("1"), seed=5)).seed == 5
    async with session_of(ScriptedWorkflow(tmp_path, look, [])) as session:
        await session.run(item("1"), seed=5)
    assert policies == [CapturePolicy(logprobs=True, token_ids=True, seed=5), CapturePolicy()]


@pytest.mark.parametrize("blocks", [False, True])
async def test_a_rollout_that_lasts_is_named_once_with_its_limit(tmp_path: Path, caplog, blocks):
    """Also of an agent that blocks the event loop, in which no time limit can end it."""

    async def lasts(question: str):
        time.sleep(0.1) if blocks else await asyncio.sleep(0.1)  # noqa: ASYNC251 - what this is about
        return question

    scripted = ScriptedWorkflow(tmp_path, lasts, [])
    scripted.general["item_timeout"] = 40.0
    async with session_of(scripted, named_after=0.02) as session:
        for name in ("sum-1", "sum-2"):
            await session.run(item(name), seed=5)
    [named] = [text for text in caplog.messages if "has been playing" in text]
    assert "sum-1" in named
    assert "40 s (eval.general.item_timeout)" in named


async def test_the_innermost_session_of_a_config_is_current(tmp_path: Path):
    """Sessions are distinguished by their configuration, and forgotten when their block ends."""
    scripted = ScriptedWorkflow(tmp_path, fails_on_b, [])
    async with session_of(scripted, override=(("workflow.tone", "loud"),)) as session:
        path = scripted.config_file
        assert current_session(path) is None
        with using_session(session):
            assert current_session(path) is session
            assert current_session(path.parent / "." / path.name) is session
            assert current_session(session.config) is session
            assert current_session(session.config.model_copy()) is None
            assert current_session(path, (("workflow.tone", "loud"),)) is session
            assert current_session(path, (("workflow.tone", "low"),)) is None
            assert current_session(tmp_path / "other.yml") is None
            with using_session(inner := WorkflowSession(session.config, session.builder, config_file=path)):
                assert current_session(path) is inner
        assert current_session(path) is None
