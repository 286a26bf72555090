"""Agno's model always uses the recorded clients, and telemetry is off unless the user turns it on."""

import asyncio
import os
from copy import deepcopy

from agno.agent import Agent

from nat.llm.openai_llm import OpenAIModelConfig
from nat.plugins.frameworks.agno import open_model

CONFIG = OpenAIModelConfig(model_name="m", base_url="http://127.0.0.1:9/v1")


async def a_copied_or_closed_model_has_the_recorded_clients() -> None:
    """Agno copies a model without its clients and replaces closed ones; neither call would be recorded."""
    async with open_model(CONFIG, llm_name="student") as model:
        copied = deepcopy(model)
        assert copied is not model
        assert copied.get_async_client() is model.get_async_client()
        assert copied.get_client() is model.get_client()
    assert model.get_async_client().is_closed()
    assert model.get_client().is_closed()


async def telemetry_is_off_by_default() -> None:
    """Agno's own variable turns telemetry on or off, and the user's value wins."""
    for given, telemetry in ((None, False), ("true", True)):
        os.environ.pop("AGNO_TELEMETRY", None)
        if given is not None:
            os.environ["AGNO_TELEMETRY"] = given
        async with open_model(CONFIG, llm_name="student") as model:
            agent = Agent(model=model)
            agent.initialize_agent()
            assert agent.telemetry is telemetry


async def main() -> None:
    await a_copied_or_closed_model_has_the_recorded_clients()
    await telemetry_is_off_by_default()


if __name__ == "__main__":
    asyncio.run(main())
