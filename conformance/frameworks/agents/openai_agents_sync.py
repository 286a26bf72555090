"""The scripted agent in the OpenAI Agents SDK's blocking API: each run uses its thread's event loop."""

from typing import Any

from agents import Agent, Runner
from agents.items import TResponseInputItem
from agents.models.interface import Model
from conformance.frameworks.agents.openai_agents import user_message
from conformance.frameworks.talks import Talk

WRAPPER = "openai_agents"
PACKAGES = ("openai-agents",)
CANNOT = {"stream": "Runner.run_streamed wants an event loop"}


def talk(llm: Model, tools: list[Any], talk: Talk) -> list[str]:
    """One run per user message; the SDK's input list carries the history."""
    agent = Agent(name="assistant", instructions=talk.system, model=llm, tools=tools)
    history: list[TResponseInputItem] = []
    answers = []
    for said in talk.says:
        history.append(user_message(said))
        result = Runner.run_sync(agent, history)
        history = result.to_input_list()
        answers.append(str(result.final_output))
    return answers
