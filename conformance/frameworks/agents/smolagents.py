"""The scripted agent in smolagents, calling tools by JSON."""

from __future__ import annotations

from typing import Any

from conformance.frameworks.talks import AsGiven, Said, Talk
from smolagents import LogLevel, MultiStepAgent, OpenAIModel, ToolCallingAgent

WRAPPER = "smolagents"
PACKAGES = ("smolagents",)
CANNOT: dict[str, str] = {}


def talk(llm: OpenAIModel, tools: list[Any], talk: Talk) -> list[str]:
    return talk_with(ToolCallingAgent, llm, tools, talk)


def talk_with(kind: type[MultiStepAgent], llm: OpenAIModel, tools: list[Any], talk: Talk) -> list[str]:
    """One agent; it keeps the history unless a run resets it."""
    agent = kind(
        model=llm,
        tools=tools,
        instructions=talk.system,
        stream_outputs=talk.stream,
        verbosity_level=LogLevel.OFF,
    )
    return [str(agent.run(said.text, reset=False, images=_images(said))) for said in talk.says]


def _images(said: Said) -> list[Any] | None:
    return None if said.image_url is None else [AsGiven(said.picture)]
