"""The agent: a LangGraph graph of two nodes, the model and its tools, as a workflow."""

from collections.abc import AsyncGenerator
from typing import Annotated, Literal, TypedDict

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.managed import RemainingSteps
from langgraph.prebuilt import ToolNode, tools_condition

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.component_ref import FunctionRef, LLMRef
from nat.data_models.function import FunctionBaseConfig

PROMPT = "You pack suitcases. Look up where the person goes, then the weather there, then say what to take along."
MOST_STEPS, A_LOOK_UP = 8, 3
"""The limit of graph steps, and the steps of a look-up: the tools, the model that reads their results, and the end."""


class PackerConfig(FunctionBaseConfig, name="packer"):
    """Configuration of an agent that tells what a traveller should pack."""

    llm: LLMRef
    """The model that answers."""
    tools: list[FunctionRef]
    """The tools with the destinations and the weather; keys of `functions`."""


class State(TypedDict):
    """The state that the graph's nodes exchange."""

    messages: Annotated[list[AnyMessage], add_messages]
    remaining_steps: RemainingSteps


def after_model(state: State) -> Literal["tools", "__end__"]:
    """Continue with the tools if the model called one and enough steps remain for an answer."""
    wanted: Literal["tools", "__end__"] = tools_condition(state)
    return wanted if state["remaining_steps"] >= A_LOOK_UP else "__end__"


@register_function(config_type=PackerConfig)
async def packer(config: PackerConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """The workflow function does not depend on training and also runs in production."""
    tools = await builder.get_tools(config.tools, wrapper_type="langchain")
    model = (await builder.get_llm(config.llm, wrapper_type="langchain")).bind_tools(tools)

    async def ask(state: State) -> dict[str, list[AnyMessage]]:
        return {"messages": [await model.ainvoke([SystemMessage(PROMPT), *state["messages"]])]}

    steps = StateGraph(State).add_node("model", ask).add_node("tools", ToolNode(tools))
    steps.add_edge(START, "model").add_conditional_edges("model", after_model).add_edge("tools", "model")
    graph = steps.compile()

    async def answer(question: str) -> str:
        """What a traveller should pack."""
        state = await graph.ainvoke({"messages": [HumanMessage(question)]}, {"recursion_limit": MOST_STEPS})
        return str(state["messages"][-1].text)

    yield FunctionInfo.from_fn(answer, description="Tells what a traveller should take along")
