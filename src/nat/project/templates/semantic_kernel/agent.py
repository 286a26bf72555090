"""The agent, with Semantic Kernel. Put yours in `make_agent`."""

from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.functions import KernelPlugin

FRAMEWORK = "semantic_kernel"
INSTRUCTION = "Use your tools, then answer with the number alone."


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is a chat service."""
    plugin = KernelPlugin(name="tools", functions=tools)  # the model sees `tools-add`

    async def answer(question: str) -> str:
        agent = ChatCompletionAgent(
            service=llm, name="assistant", instructions=INSTRUCTION, plugins=[plugin]
        )
        response = await agent.get_response(messages=question)
        return str(response.message)

    return answer
