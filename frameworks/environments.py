"""The virtual environment of each framework, made by `interop/environments.py` from `requirements/`.

Each holds the framework at pinned versions and this package, editable. `python frameworks/environments.py [NAME …]`
makes those that are named, or all; with `--renew` it locks the newest releases that their requirement files allow.
"""

import importlib.util
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parent
SHARED = {
    "crewai_sync": "crewai",
    "adk_sync": "adk",
    "agno_sync": "agno",
    "langchain_sync": "langchain",
    "langgraph": "langchain",
    "llama_index_sync": "llama_index",
    "openai_agents_sync": "openai_agents",
    "openai_sync": "openai",
    "pydantic_ai_sync": "pydantic_ai",
    "smolagents_code": "smolagents",
    "strands_blocking": "strands",
}
"""Agents that live in another one's environment."""

_spec = importlib.util.spec_from_file_location("interop_environments", REPOSITORY / "interop" / "environments.py")
assert _spec is not None
assert _spec.loader is not None
interop = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(interop)

FRAMEWORKS = interop.Environments(HERE / "requirements", REPOSITORY / ".tmp" / "frameworks")


def names() -> list[str]:
    """Every framework that has a scripted agent."""
    return sorted(file.stem for file in (HERE / "agents").glob("*.py"))


def python_of(framework: str) -> Path:
    """The interpreter that has the framework."""
    python: Path = FRAMEWORKS.python_of(SHARED.get(framework, framework))
    return python


if __name__ == "__main__":
    interop.make(FRAMEWORKS)
