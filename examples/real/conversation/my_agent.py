"""The agent: a LangGraph graph of two nodes, a model and a tool, which the model calls by naming a city."""

from collections.abc import AsyncGenerator
from typing import Annotated, Literal, TypedDict

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from weather import WEATHER, city_in

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig

ASK = "{question}\n\nI can look up the weather of a city. Which city? Answer with its name."
AGAIN = "I need the name of one city. Which city?"
TELL = "The weather in {city} is {weather}. Now answer the first question in a few words: how is the weather?"
MOST_CALLS = 3
"""Calls that may pass until the model has named a city."""


class MyAgentConfig(FunctionBaseConfig, name="my_agent"):
    """`_type: my_agent` in config.yml."""

    llm: LLMRef


class State(TypedDict):
    """The state that the graph's nodes exchange."""

    messages: Annotated[list[AnyMessage], add_messages]
    city: str
    """The city whose weather was looked up; empty before."""


def after_model(state: State) -> Literal["tool", "__end__"]:
    """End with the answer, or where the model has named no city for too long."""
    calls = len(state["messages"]) // 2
    return "__end__" if state["city"] or (calls >= MOST_CALLS and city_in(_last(state)) is None) else "tool"


def tool(state: State) -> dict[str, object]:
    """Look up the weather of the city that the model names, or ask again."""
    city = city_in(_last(state))
    text = AGAIN if city is None else TELL.format(city=city, weather=WEATHER[city])
    return {"messages": [HumanMessage(text)], "city": city or ""}


def _last(state: State) -> str:
    return str(state["messages"][-1].text)


@register_function(config_type=MyAgentConfig)
async def my_agent(config: MyAgentConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """Give `nat` the agent."""
    llm = await builder.get_llm(config.llm, wrapper_type="langchain")  # a ChatOpenAI; every call is captured

    async def model(state: State) -> dict[str, list[AnyMessage]]:
        return {"messages": [await llm.ainvoke(state["messages"])]}

    graph = StateGraph(State).add_node("model", model).add_node("tool", tool)
    graph.add_edge(START, "model").add_conditional_edges("model", after_model).add_edge("tool", "model")
    agent = graph.compile()

    async def answer(question: str) -> dict[str, str]:
        start = {"messages": [HumanMessage(ASK.format(question=question))], "city": ""}
        state = await agent.ainvoke(start)
        return {"city": state["city"], "reply": _last(state)}

    yield FunctionInfo.from_fn(answer)
