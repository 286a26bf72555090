"""The agent, with smolagents. Put yours in `make_agent`."""

from smolagents import LogLevel, ToolCallingAgent

FRAMEWORK = "smolagents"
INSTRUCTION = "Use your tools, then answer with the number alone."


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is an OpenAIModel."""

    def answer(question: str) -> str:  # smolagents blocks: each rollout has a thread
        agent = ToolCallingAgent(
            tools,
            llm,
            instructions=INSTRUCTION,
            max_steps=4,
            verbosity_level=LogLevel.OFF,
        )
        return str(agent.run(question))

    return answer
