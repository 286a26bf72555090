"""Run a framework's agent in its environment against a scripted server; keep the captured calls and the log."""

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.environments import REPOSITORY, outside, python_of
from conformance.frameworks.server import Served, serving

from nat.data_models.llm_call import LLMCall
from nat.finetuning.trajectories.calls import SeenCall
from nat.finetuning.trajectories.messages import conversations_and_rows
from nat.finetuning.trajectories.rows import broken_by

DEADLINE_S = 900
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
"""Agents that use another agent's environment."""
OFFLINE = {
    "DO_NOT_TRACK": "1",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "ANONYMIZED_TELEMETRY": "false",
    "AGNO_TELEMETRY": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "HF_HUB_OFFLINE": "1",
    "OPENAI_API_KEY": "",
    "PYTHONPATH": str(REPOSITORY),
}
"""Offline and without telemetry; scripts of this package can be imported."""


class PlayFailed(Exception):
    """The agent's process failed; the message has its output."""


@dataclass(frozen=True)
class Played:
    """One framework's rollouts, and the server's log of them."""

    framework: str
    wrapper_type: str
    versions: Mapping[str, str]
    cannot: Mapping[str, str]
    """Scenes that the framework does not support, with the reason."""
    blocks: bool
    rollouts: Mapping[str, Mapping[str, Any]]
    served: Mapping[str, list[Served]]
    unknown: list[bytes]
    """Requests for which the script has no answer."""
    seconds: float

    def rows(self, name: str) -> int:
        """Number of training rows that a rollout's captured calls become."""
        return len(conversations_and_rows(self._calls(name))[1])

    def broken_prefixes(self, name: str) -> int:
        """Number of captured calls that continue a conversation by its text but not by its tokens."""
        return sum(broken_by(conversations_and_rows(self._calls(name))[0]).values())

    def _calls(self, name: str) -> list[SeenCall]:
        calls = (LLMCall.model_validate(seen["call"]) for seen in self.rollouts[name]["calls"])
        return [SeenCall(call=call, function="") for call in calls]

    def names(self, batch: str) -> list[str]:
        """The rollouts of a batch: `once`, `many` or `thread`."""
        return [name for name in self.rollouts if name.startswith(f"{batch}-")]


def names() -> list[str]:
    """Every framework that has a scripted agent."""
    return sorted(file.stem for file in (Path(__file__).parent / "agents").glob("*.py"))


def played(framework: str, folder: Path) -> Played:
    """Run the framework's agent; raises PlayFailed if its process fails."""
    file, log = folder / f"{framework}.json", folder / f"{framework}.log"
    python = python_of(SHARED.get(framework, framework))
    began = time.monotonic()
    with serving() as script, log.open("w") as out:
        code = subprocess.run(
            [python, "-m", "conformance.frameworks.play", framework, script.base_url, file],
            cwd=folder,
            env=outside() | OFFLINE,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
            check=False,
        ).returncode
    if code != 0:
        raise PlayFailed(f"the agent of {framework}: exit code {code}; it wrote\n{log.read_text()[-6000:]}")
    result = json.loads(file.read_text())
    rollouts = {rollout["name"]: rollout for rollout in result["rollouts"]}
    served = {name: [call for call in script.log if call.rollout == name] for name in rollouts}
    return Played(
        framework=framework,
        wrapper_type=result["wrapper_type"],
        versions=result["versions"],
        cannot=result["cannot"],
        blocks=result["blocks"],
        rollouts=rollouts,
        served=served,
        unknown=script.unknown,
        seconds=time.monotonic() - began,
    )
