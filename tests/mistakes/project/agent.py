"""The agent of the mistaken projects: it asks the model once."""

from nat.builder.function_info import FunctionInfo
from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig
from nat.registry.decorators import register_function


class AdderConfig(FunctionBaseConfig, name="adder"):
    """An agent that adds two numbers."""

    llm: LLMRef
    greeting: str = "Hello."


@register_function(config_type=AdderConfig)
async def adder(config, builder):
    client = await builder.get_llm(config.llm, "openai")

    async def add(question: str) -> str:
        messages = [{"role": "user", "content": question}]
        completion = await client.chat.completions.create(model=client.model_name, messages=messages)
        return completion.choices[0].message.content

    yield FunctionInfo.from_fn(add, description="Adds two numbers.")
