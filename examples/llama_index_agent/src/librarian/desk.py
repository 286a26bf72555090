"""The agent: LlamaIndex's FunctionAgent with one tool, as a workflow of the toolkit."""

from collections.abc import AsyncGenerator

from llama_index.core.agent.workflow import FunctionAgent

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.component_ref import FunctionRef, LLMRef
from nat.data_models.function import FunctionBaseConfig

PROMPT = "You are a librarian. Look a book up before you say where it is."


class LibrarianConfig(FunctionBaseConfig, name="librarian"):
    """Configuration of an agent that tells where a book is."""

    llm: LLMRef
    """The model that answers."""
    find: FunctionRef
    """The tool with the catalogue; a key of `functions`."""


@register_function(config_type=LibrarianConfig)
async def librarian(config: LibrarianConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """The workflow function does not depend on training and also runs in production."""
    llm = await builder.get_llm(config.llm, wrapper_type="llama_index")
    find = await builder.get_tool(config.find, wrapper_type="llama_index")
    agent = FunctionAgent(llm=llm, tools=[find], system_prompt=PROMPT, streaming=False)

    async def answer(question: str) -> str:
        """Where a book is: the number of its shelf."""
        output = await agent.run(user_msg=question, max_iterations=4, early_stopping_method="generate")
        return output.response.content or ""

    yield FunctionInfo.from_fn(answer, description="Tells on which shelf a book is")
