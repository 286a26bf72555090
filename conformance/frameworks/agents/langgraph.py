"""A LangGraph agent: LangChain's prebuilt graph, with a checkpointer that keeps the conversation."""

from typing import Any

from conformance.frameworks.talks import Said, Talk
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
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
        state = {"messages": [_message(said)]}
        if talk.stream:
            async for _piece in graph.astream(state, thread, stream_mode="messages"):
                pass
        else:
            await graph.ainvoke(state, thread)
        answers.append((await graph.aget_state(thread)).values["messages"][-1].text)
    return answers


def _message(said: Said) -> HumanMessage:
    if said.image_url is None:
        return HumanMessage(said.text)
    return HumanMessage(
        [{"type": "text", "text": said.text}, {"type": "image_url", "image_url": {"url": said.image_url}}]
    )
