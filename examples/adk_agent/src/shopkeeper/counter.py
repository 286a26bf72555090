"""The agent: ADK's LlmAgent with one tool under a Runner, as a workflow of the toolkit."""

from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent, RunConfig
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, Part

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.component_ref import FunctionRef, LLMRef
from nat.data_models.function import FunctionBaseConfig

PROMPT = "You are a shopkeeper. Look both prices up, then say what they are together."
USER = "customer"


class ShopkeeperConfig(FunctionBaseConfig, name="shopkeeper"):
    """Configuration of an agent that tells what two things cost together."""

    llm: LLMRef
    """The model that answers."""
    price: FunctionRef
    """The tool with the prices; a key of `functions`."""


@register_function(config_type=ShopkeeperConfig)
async def shopkeeper(config: ShopkeeperConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """The workflow function does not depend on training and also runs in production."""
    llm = await builder.get_llm(config.llm, wrapper_type="adk")
    price = await builder.get_tool(config.price, wrapper_type="adk")
    agent = LlmAgent(name="shopkeeper", model=llm, instruction=PROMPT, tools=[price])

    async def answer(question: str) -> str:
        """What two things cost together."""
        runner = InMemoryRunner(agent, app_name="shop")
        session = await runner.session_service.create_session(app_name="shop", user_id=USER)
        asked = Content(role="user", parts=[Part(text=question)])
        said = ""
        async for event in runner.run_async(
            user_id=USER, session_id=session.id, new_message=asked, run_config=RunConfig(max_llm_calls=4)
        ):
            if event.is_final_response() and event.content is not None:
                said = "".join(part.text or "" for part in event.content.parts or ())
        return said

    yield FunctionInfo.from_fn(answer, description="Tells what two things cost together")
