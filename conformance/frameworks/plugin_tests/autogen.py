"""AutoGen's client takes any model's name, and goes to the server of the configuration only."""

import asyncio

from nat.llm.openai_llm import OpenAIModelConfig
from nat.plugins.frameworks.autogen import ALL_CAPABILITIES, open_model


async def any_model_name_is_accepted() -> None:
    """AutoGen keeps its knowledge of OpenAI's models; any other name counts as able to do everything."""
    for name, known in (("gpt-4o-mini", True), ("student", False), ("Qwen/Qwen3-0.6B", False)):
        config = OpenAIModelConfig(model_name=name, base_url="http://127.0.0.1:9/v1")
        async with open_model(config, llm_name="student") as client:
            assert (client.model_info["family"] != ALL_CAPABILITIES["family"]) is known
            assert client.model_info["function_calling"]


if __name__ == "__main__":
    asyncio.run(any_model_name_is_accepted())
