"""The agent, with Agno. Put yours in `make_agent`."""

from agno.agent import Agent

FRAMEWORK = "agno"
INSTRUCTION = "Use your tools, then answer with the number alone."


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is an OpenAILike."""

    async def answer(question: str) -> str:
        # It keeps its session, so each rollout has its own.
        agent = Agent(model=llm, tools=tools, system_message=INSTRUCTION)
        result = await agent.arun(question)
        return str(result.content)

    return answer
