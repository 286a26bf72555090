"""The agent, a graph of LangGraph. Put yours in `make_agent`."""

from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

FRAMEWORK = "langchain"
INSTRUCTION = "Use your tools, then answer with the number alone."


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is a ChatOpenAI."""
    model = llm.bind_tools(tools)

    async def ask(state: MessagesState):
        messages = [SystemMessage(INSTRUCTION), *state["messages"]]
        return {"messages": [await model.ainvoke(messages)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    agent = graph.compile()

    async def answer(question: str) -> str:
        state = await agent.ainvoke({"messages": [HumanMessage(question)]})
        return state["messages"][-1].text

    return answer
