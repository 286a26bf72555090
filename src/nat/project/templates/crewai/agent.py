"""The agent, with CrewAI. Put yours in `make_agent`."""

from crewai import Agent

FRAMEWORK = "crewai"


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is an OpenAICompletion."""

    async def answer(question: str) -> str:
        agent = Agent(  # it keeps state, so each rollout has its own
            role="Calculator",
            goal="Answer with the number alone.",
            backstory="Careful.",
            llm=llm,
            tools=tools,
        )
        result = await agent.kickoff_async(question)
        return result.raw

    return answer
