from openai import OpenAI

from fakes.openai_server import OpenAIServer, Say
from nat.builder.context import ContextState
from nat.builder.threads import run_in_thread
from nat.builder.workflow_builder import WorkflowBuilder
from nat.data_models.intermediate_step import IntermediateStepType
from nat.data_models.llm import LLMFrameworkEnum
from nat.llm.openai_llm import OpenAIModelConfig
from nat.plugins import register  # noqa: F401 - registers the client


async def test_the_client_blocks_records_and_is_closed_with_the_builder():
    """An OpenAI whose calls are steps of the rollout of the thread that makes them; defaults are the config's."""
    steps, state = [], ContextState()
    state.intermediate_step_manager.subscribe(steps.append)
    async with OpenAIServer([Say("hello")]) as server:
        config = OpenAIModelConfig(model_name="m", base_url=server.base_url, temperature=0.5)
        async with WorkflowBuilder() as builder:
            await builder.add_llm("student", config)
            client = await builder.get_llm("student", wrapper_type="openai_sync")
            assert isinstance(client, OpenAI)
            assert client.with_options(max_retries=0).model_name == client.model_name == "m"

            def ask() -> str:
                messages = [{"role": "user", "content": "hi"}]
                return (
                    client.chat.completions.create(model=client.model_name, messages=messages)
                    .choices[0]
                    .message.content
                )

            with state.active():
                assert await run_in_thread(ask) == "hello"
        assert client.is_closed()
    assert server.bodies[0]["temperature"] == 0.5
    [end] = [step for step in steps if step.event_type is IntermediateStepType.LLM_END]
    assert end.framework is LLMFrameworkEnum.OPENAI_SYNC
    assert (end.metadata.llm_call.llm_name, end.metadata.llm_call.message["content"]) == ("student", "hello")
