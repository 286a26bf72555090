"""The LangChain agent in LangChain's blocking API."""

from typing import Any

from conformance.frameworks.agents.langchain import user_message
from conformance.frameworks.talks import Talk
from langchain_core.messages import AnyMessage, SystemMessage

WRAPPER = "langchain"
PACKAGES = ("langchain-openai", "langchain-core")
CANNOT: dict[str, str] = {}


def talk(llm: Any, tools: list[Any], talk: Talk) -> list[str]:
    """Ask, run the tools that are called, and ask again, until the model answers with a text."""
    model = llm.bind_tools(tools) if tools else llm
    by_name = {tool.name: tool for tool in tools}
    messages: list[AnyMessage] = [SystemMessage(talk.system)]
    answers = []
    for said in talk.says:
        messages.append(user_message(said))
        while True:
            message = _ask(model, messages, stream=talk.stream)
            messages.append(message)
            if not message.tool_calls:
                break
            messages += [by_name[call["name"]].invoke(call) for call in message.tool_calls]
        answers.append(message.text)
    return answers


def _ask(model: Any, messages: list[AnyMessage], *, stream: bool) -> Any:
    if not stream:
        return model.invoke(messages)
    whole: Any = None
    for chunk in model.stream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole
