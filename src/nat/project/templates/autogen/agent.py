"""The agent, with AutoGen. Put yours in `make_agent`."""

from autogen_agentchat.agents import AssistantAgent

FRAMEWORK = "autogen"
INSTRUCTION = "Use your tools, then answer with the number alone."


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is AutoGen's OpenAI client."""

    async def answer(question: str) -> str:
        agent = AssistantAgent(  # it keeps its history, so each rollout has its own
            "assistant",
            llm,
            tools=tools,
            system_message=INSTRUCTION,
            max_tool_iterations=8,
        )
        result = await agent.run(task=question)
        return result.messages[-1].to_model_text()

    return answer
