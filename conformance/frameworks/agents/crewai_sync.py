"""The scripted agent in CrewAI's blocking API: a crew for a single task, else the agent alone."""

from typing import Any

from conformance.frameworks.agents.crewai import user_message
from conformance.frameworks.talks import Talk
from crewai import Agent, Crew, Task
from crewai.events.utils.console_formatter import set_suppress_console_output
from crewai.llms.base_llm import BaseLLM

WRAPPER = "crewai"
PACKAGES = ("crewai",)
CANNOT: dict[str, str] = {}


def talk(llm: BaseLLM, tools: list[Any], talk: Talk) -> list[str]:
    """A crew has no history; an agent's kickoff takes the earlier messages."""
    set_suppress_console_output(True)
    if talk.stream:
        llm = llm.model_copy(update={"stream": True})
    agent = Agent(role="assistant", goal="Answer.", backstory=talk.system, llm=llm, tools=tools)
    if len(talk.says) == 1 and talk.says[0].image_url is None:
        task = Task(description=talk.says[0].text, expected_output="An answer.", agent=agent)
        return [Crew(agents=[agent], tasks=[task]).kickoff().raw]
    history: list[Any] = []
    answers = []
    for said in talk.says:
        history.append(user_message(said))
        result = agent.kickoff(history)
        history.append({"role": "assistant", "content": result.raw})
        answers.append(result.raw)
    return answers
