"""The agent, with the OpenAI Agents SDK. Put yours in `make_agent`."""

from agents import Agent, Runner

FRAMEWORK = "openai_agents"
INSTRUCTION = "Use your tools, then answer with the number alone."


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is a model of the SDK."""
    agent = Agent(name="assistant", instructions=INSTRUCTION, model=llm, tools=tools)

    async def answer(question: str) -> str:
        result = await Runner.run(agent, question)
        return str(result.final_output)

    return answer
