"""The coding agents, each with the configuration from its section of the docs page.

The agents are unmodified; the configurations use their own options and variables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from e2e.doc_pages import ROOT, Page
from nat.config.load import parse_config
from nat.config.sources import parse_yaml
from nat.plugins.command import CommandConfig

PAGE = Page(ROOT / "docs" / "agents" / "coding_agents.md")


@dataclass(frozen=True)
class CodingAgent:
    """A released agent, and its shell tool."""

    name: str
    """Name of its program, and of its file in `requirements/agents/`."""
    configuration: str
    """Name of the configuration file on the page."""
    shell_tool: str
    """Name of its shell tool."""
    shell_arguments: Callable[[str], dict[str, Any]]
    """Arguments with which the shell tool runs a command."""

    def command(self) -> CommandConfig:
        """The workflow that the page shows."""
        (block,) = (block for block in PAGE.blocks if block.file_name == self.configuration)
        return cast("CommandConfig", parse_config(parse_yaml(block.text), source=block.place).workflow)


AGENTS = [
    CodingAgent("codex", "codex.yml", "exec_command", lambda command: {"cmd": command}),
    CodingAgent("claude", "claude_code.yml", "Bash", lambda command: {"command": command, "description": "Run it."}),
    CodingAgent(
        "qwen", "qwen_code.yml", "run_shell_command", lambda command: {"command": command, "is_background": False}
    ),
]
