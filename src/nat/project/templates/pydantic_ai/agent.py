"""The agent, with Pydantic AI. Put yours in `make_agent`."""

from pydantic_ai import Agent

FRAMEWORK = "pydantic_ai"
INSTRUCTION = "Use your tools, then answer with the number alone."


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is an OpenAIChatModel."""
    agent = Agent(llm, system_prompt=INSTRUCTION, tools=tools)

    async def answer(question: str) -> str:
        result = await agent.run(question)
        return result.output

    return answer
