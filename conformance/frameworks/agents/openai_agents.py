"""The scripted agent in the OpenAI Agents SDK."""

from typing import Any

from agents import Agent, Runner
from agents.items import TResponseInputItem
from agents.models.interface import Model
from conformance.frameworks.talks import Said, Talk

WRAPPER = "openai_agents"
PACKAGES = ("openai-agents",)
CANNOT: dict[str, str] = {}


async def talk(llm: Model, tools: list[Any], talk: Talk) -> list[str]:
    """One run per user message; the SDK's input list carries the history."""
    agent = Agent(name="assistant", instructions=talk.system, model=llm, tools=tools)
    history: list[TResponseInputItem] = []
    answers = []
    for said in talk.says:
        history.append(user_message(said))
        if talk.stream:
            result: Any = Runner.run_streamed(agent, history)
            async for _event in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, history)
        history = result.to_input_list()
        answers.append(str(result.final_output))
    return answers


def user_message(said: Said) -> TResponseInputItem:
    if said.image_url is None:
        return {"role": "user", "content": said.text}
    return {
        "role": "user",
        "content": [
            {"type": "input_text", "text": said.text},
            {"type": "input_image", "image_url": said.image_url, "detail": "auto"},
        ],
    }
