"""The agent, with LlamaIndex. Put yours in `make_agent`."""

from llama_index.core.agent.workflow import FunctionAgent

FRAMEWORK = "llama_index"
INSTRUCTION = "Use your tools, then answer with the number alone."


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is an OpenAILike."""
    agent = FunctionAgent(llm=llm, tools=tools, system_prompt=INSTRUCTION)

    async def answer(question: str) -> str:
        return str(await agent.run(user_msg=question))

    return answer
