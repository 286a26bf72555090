"""The agent, with LangChain. Put yours in `make_agent`."""

from langchain.agents import create_agent

FRAMEWORK = "langchain"
INSTRUCTION = "Use your tools, then answer with the number alone."


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is a ChatOpenAI."""
    agent = create_agent(llm, tools, system_prompt=INSTRUCTION)

    async def answer(question: str) -> str:
        asked = {"messages": [{"role": "user", "content": question}]}
        state = await agent.ainvoke(asked)
        return state["messages"][-1].text

    return answer
