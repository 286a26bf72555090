"""The coding agents, each with the configuration that the page of the docs shows for it.

Nothing of an agent is changed: the configurations use its own options and variables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from e2e.doc_pages import ROOT, Page
from nat.config.load import parse_config
from nat.config.sources import parse_yaml
from nat.plugins.command.config import CommandConfig

PAGE = Page(ROOT / "docs" / "guides" / "coding_agents.md")


@dataclass(frozen=True)
class CodingAgent:
    """A release, and what a model has to know to use it."""

    name: str
    """Of its program, and of the file in `requirements/agents/`."""
    configuration: str
    """The file's name on the page."""
    shell_tool: str
    """What its tool for the shell is called."""
    shell_arguments: Callable[[str], dict[str, Any]]
    """The arguments with which this tool runs a command."""

    def command(self) -> CommandConfig:
        """The workflow of the page."""
        (block,) = (block for block in PAGE.blocks if block.file_name == self.configuration)
        return cast("CommandConfig", parse_config(parse_yaml(block.text), source=block.place).workflow)


AGENTS = [
    CodingAgent("codex", "codex.yml", "exec_command", lambda command: {"cmd": command}),
    CodingAgent("claude", "claude_code.yml", "Bash", lambda command: {"command": command, "description": "Run it."}),
    CodingAgent(
        "qwen", "qwen_code.yml", "run_shell_command", lambda command: {"command": command, "is_background": False}
    ),
]
