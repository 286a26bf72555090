"""The agent frameworks that a new project can be made for."""

from pathlib import Path
from typing import NamedTuple

from nat.errors import ProjectRefused, did_you_mean, one_of

TEMPLATES = Path(__file__).parent / "templates"
SHARED = TEMPLATES / "shared"


class Framework(NamedTuple):
    """What a project for a framework needs beside its template."""

    title: str
    extra: str | None
    """The extra of this package that installs it."""
    tool: str = "add"
    """The name under which the model sees the tool `add`."""
    answer_tool: str | None = None
    """The tool whose call is the agent's answer; None if the answer is text."""


FRAMEWORKS = {
    "openai": Framework("the OpenAI SDK", extra=None),
    "command": Framework("any language, as a program", extra="serve"),
    "langchain": Framework("LangChain", extra="langchain"),
    "langgraph": Framework("LangGraph", extra="langchain"),
    "llama_index": Framework("LlamaIndex", extra="llama-index"),
    "adk": Framework("Google ADK", extra="adk"),
    "openai_agents": Framework("the OpenAI Agents SDK", extra="openai-agents"),
    "pydantic_ai": Framework("Pydantic AI", extra="pydantic-ai"),
    "autogen": Framework("AutoGen", extra="autogen"),
    "semantic_kernel": Framework("Semantic Kernel", extra="semantic-kernel", tool="tools-add"),
    "agno": Framework("Agno", extra="agno"),
    "strands": Framework("Strands", extra="strands"),
    "crewai": Framework("CrewAI", extra="crewai"),
    "smolagents": Framework("smolagents", extra="smolagents", answer_tool="final_answer"),
}
"""By the name of the template's folder."""


def framework_named(name: str) -> str:
    """The key in `FRAMEWORKS`; an extra's name (`llama-index`) is understood, too."""
    key = name.casefold().replace("-", "_")
    if key not in FRAMEWORKS:
        raise ProjectRefused(
            f"there is no framework '{name}'.{did_you_mean(key, FRAMEWORKS)}",
            hint=f"choose one of {one_of(FRAMEWORKS)}; a program in any language is `command`",
        )
    return key
