"""The scripted agent in CrewAI's asynchronous API."""

from typing import Any

from conformance.frameworks.talks import Said, Talk
from crewai import Agent
from crewai.events.utils.console_formatter import set_suppress_console_output
from crewai.llms.base_llm import BaseLLM
from crewai_files import ImageFile

WRAPPER = "crewai"
PACKAGES = ("crewai",)
CANNOT: dict[str, str] = {}


async def talk(llm: BaseLLM, tools: list[Any], talk: Talk) -> list[str]:
    """One agent; its kickoff takes the earlier messages."""
    set_suppress_console_output(True)
    if talk.stream:
        llm = llm.model_copy(update={"stream": True})
    agent = Agent(role="assistant", goal="Answer.", backstory=talk.system, llm=llm, tools=tools)
    history: list[Any] = []
    answers = []
    for said in talk.says:
        history.append(user_message(said))
        result = await agent.kickoff_async(history)
        history.append({"role": "assistant", "content": result.raw})
        answers.append(result.raw)
    return answers


def user_message(said: Said) -> dict[str, Any]:
    """The user's message; CrewAI itself adds the file to its parts."""
    if said.image_url is None:
        return {"role": "user", "content": said.text}
    return {"role": "user", "content": said.text, "files": {"picture": ImageFile(source=said.picture)}}
