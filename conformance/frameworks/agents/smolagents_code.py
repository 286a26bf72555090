"""The scripted agent in smolagents, acting by code: its tools are called in the thread that runs the code."""

from __future__ import annotations

from typing import Any

from conformance.frameworks.agents.smolagents import talk_with
from conformance.frameworks.talks import Talk
from smolagents import CodeAgent, OpenAIModel

WRAPPER = "smolagents"
PACKAGES = ("smolagents",)
CANNOT: dict[str, str] = {}


def talk(llm: OpenAIModel, tools: list[Any], talk: Talk) -> list[str]:
    return talk_with(CodeAgent, llm, tools, talk)
