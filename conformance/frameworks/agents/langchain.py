"""An agent of plain LangChain: a chat model with tools bound to it, in a loop."""

from typing import Any

from conformance.frameworks.talks import Said, Talk
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

WRAPPER = "langchain"
PACKAGES = ("langchain-openai", "langchain-core")
CANNOT: dict[str, str] = {}


async def talk(llm: Any, tools: list[Any], talk: Talk) -> list[str]:
    """Ask, run the tools that are called, and ask again, until the model answers with a text."""
    model = llm.bind_tools(tools) if tools else llm
    by_name = {tool.name: tool for tool in tools}
    messages: list[AnyMessage] = [SystemMessage(talk.system)]
    answers = []
    for said in talk.says:
        messages.append(user_message(said))
        while True:
            message = await _ask(model, messages, stream=talk.stream)
            messages.append(message)
            if not message.tool_calls:
                break
            messages += [await by_name[call["name"]].ainvoke(call) for call in message.tool_calls]
        answers.append(message.text)
    return answers


async def _ask(model: Any, messages: list[AnyMessage], *, stream: bool) -> Any:
    if not stream:
        return await model.ainvoke(messages)
    whole: Any = None
    async for chunk in model.astream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


def user_message(said: Said) -> HumanMessage:
    if said.image_url is None:
        return HumanMessage(said.text)
    return HumanMessage(
        [{"type": "text", "text": said.text}, {"type": "image_url", "image_url": {"url": said.image_url}}]
    )
