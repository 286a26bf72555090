"""The agent: one question to the model, one answer."""

from collections.abc import AsyncGenerator

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig


class MyAgentConfig(FunctionBaseConfig, name="my_agent"):
    """`_type: my_agent` in config.yml."""

    llm: LLMRef


@register_function(config_type=MyAgentConfig)
async def my_agent(config: MyAgentConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """Give `nat` the agent."""
    client = await builder.get_llm(config.llm, wrapper_type="openai")  # an AsyncOpenAI; every call is captured

    async def answer(question: str) -> str:
        messages = [{"role": "user", "content": question}]
        reply = await client.chat.completions.create(model=client.model_name, messages=messages)
        return reply.choices[0].message.content or ""

    yield FunctionInfo.from_fn(answer)
