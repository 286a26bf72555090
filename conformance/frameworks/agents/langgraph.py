"""A LangGraph agent: LangChain's prebuilt graph, with a checkpointer that keeps the conversation."""

from typing import Any

from conformance.frameworks.agents.langchain import user_message
from conformance.frameworks.talks import Talk
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

WRAPPER = "langchain"
PACKAGES = ("langgraph", "langchain", "langchain-openai")
CANNOT: dict[str, str] = {}


async def talk(llm: Any, tools: list[Any], talk: Talk) -> list[str]:
    """One thread of the graph; the checkpointer keeps its history."""
    graph = create_agent(llm, tools, system_prompt=talk.system, checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    answers = []
    for said in talk.says:
        state = {"messages": [user_message(said)]}
        if talk.stream:
            async for _piece in graph.astream(state, thread, stream_mode="messages"):
                pass
        else:
            await graph.ainvoke(state, thread)
        answers.append((await graph.aget_state(thread)).values["messages"][-1].text)
    return answers
