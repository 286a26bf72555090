"""An agent on the bare OpenAI client, with its own loop."""

from typing import Any

from conformance.frameworks.talks import Said, Talk

WRAPPER = "openai"
PACKAGES = ("openai",)
CANNOT: dict[str, str] = {}


async def talk(llm: Any, tools: list[Any], talk: Talk) -> list[str]:
    """Ask, run the tools that are called, and ask again, until the model answers with a text."""
    messages: list[Any] = [{"role": "system", "content": talk.system}]
    answers = []
    by_name = {tool.name: tool for tool in tools}
    for said in talk.says:
        messages.append({"role": "user", "content": content_of(said)})
        while True:
            message = await _ask(llm, messages, tools, stream=talk.stream)
            messages.append(message)
            if not message.tool_calls:
                break
            messages += [await by_name[call.function.name].answer(call) for call in message.tool_calls]
        answers.append(message.content)
    return answers


async def _ask(llm: Any, messages: list[Any], tools: list[Any], *, stream: bool) -> Any:
    options: dict[str, Any] = {"model": llm.model_name, "messages": messages}
    if tools:
        options["tools"] = tools
    if not stream:
        return (await llm.chat.completions.create(**options)).choices[0].message
    async with llm.chat.completions.stream(**options) as events:
        return (await events.get_final_completion()).choices[0].message


def content_of(said: Said) -> Any:
    if said.image_url is None:
        return said.text
    return [{"type": "text", "text": said.text}, {"type": "image_url", "image_url": {"url": said.image_url}}]
