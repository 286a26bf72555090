"""How each coding agent is told where its model is, and what its tool for the shell is called.

Nothing of an agent is changed: these are its own options and variables, as its own manual has them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from releases import CLAUDE, CODEX, QWEN, Release


@dataclass(frozen=True)
class CodingAgent:
    """A release and how it is run."""

    release: Release
    dialect: str
    command: str
    """For the shell, which puts in the variables; `$1` is the task."""
    shell_tool: str
    shell_arguments: Callable[[str], dict[str, Any]]
    """The arguments with which its tool for the shell runs a command."""
    env: dict[str, str] = field(default_factory=dict)


AGENTS = [
    CodingAgent(
        CODEX,
        "Responses",
        "{program} exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox --model student"
        " --config model_provider=gateway"
        " --config \"model_providers.gateway={{name='gateway', base_url='$OPENAI_BASE_URL',"
        " env_key='OPENAI_API_KEY', wire_api='responses'}}\""
        ' "$1" < /dev/null',
        "exec_command",
        lambda command: {"cmd": command},
    ),
    CodingAgent(
        CLAUDE,
        "Messages",
        '{program} --print "$1" --allowedTools Bash < /dev/null',
        "Bash",
        lambda command: {"command": command, "description": "Run it."},
        env={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_ATTRIBUTION_HEADER": "0"},
    ),
    CodingAgent(
        QWEN,
        "Chat Completions",
        '{program} --auth-type openai --model student --yolo --prompt "$1" < /dev/null',
        "run_shell_command",
        lambda command: {"command": command, "is_background": False},
    ),
]
