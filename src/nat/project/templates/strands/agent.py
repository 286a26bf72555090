"""The agent, with Strands. Put yours in `make_agent`."""

from strands import Agent

FRAMEWORK = "strands"
INSTRUCTION = "Use your tools, then answer with the number alone."


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is an OpenAIModel."""

    async def answer(question: str) -> str:
        agent = Agent(  # it keeps its history, so each rollout has its own
            model=llm,
            tools=tools,
            system_prompt=INSTRUCTION,
            callback_handler=None,  # else it prints what the model says
        )
        return str(await agent.invoke_async(question)).strip()

    return answer
