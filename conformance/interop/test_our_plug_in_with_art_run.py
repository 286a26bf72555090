"""Our plug-in trains with the real `art run` application, whose GPU part is a minimal fake with a log.

The application of each version parses what we send with its own records and streams the answers itself.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from conformance.interop import scripts
from conformance.interop.versions import Table

from fakes.openai_replies import tool_call
from fakes.openai_server import OpenAIServer, Say, SeenRequest
from fakes.processes import free_port
from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.data_models.component_ref import LLMRef
from nat.data_models.finetuning import FinetuneRunConfig
from nat.data_models.function import FunctionBaseConfig
from nat.errors import NatError
from nat.finetuning.runtime import RunResult, run_finetuning
from nat.registry.catalog import pushed_catalog
from nat.registry.decorators import register_function

NAME = "my_training_run"
LEARNING_RATE, BETA = 2e-5, 0.25
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]


class ToolAgentConfig(FunctionBaseConfig, name="tool_agent"):
    """An agent that calls a tool, then answers."""

    llm: LLMRef


def register_tool_agent() -> None:
    @register_function(config_type=ToolAgentConfig)
    async def tool_agent(config: ToolAgentConfig, builder: Builder) -> AsyncIterator[FunctionInfo]:
        client = await builder.get_llm(config.llm, wrapper_type="openai")

        async def ask(messages: list[Any]) -> Any:
            reply = await client.chat.completions.create(model=client.model_name, messages=messages, tools=TOOLS)
            return reply.choices[0].message

        async def run(question: str) -> str:
            messages: list[Any] = [{"role": "system", "content": "Look it up."}, {"role": "user", "content": question}]
            called = await ask(messages)
            messages.append(called.model_dump(exclude_none=True))
            messages.append({"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "it is right"})
            return (await ask(messages)).content

        yield FunctionInfo.from_fn(run, description="an agent with a tool")


class Policy:
    """A scripted model: it calls the tool first; then every second answer to a prompt is right."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()

    def __call__(self, request: SeenRequest) -> Say:
        if request.messages[-1]["role"] != "tool":
            return Say(None, tool_calls=(tool_call("look_up", {"what": request.last_text}),))
        question = request.messages[1]["content"]
        self.answers[question] += 1
        return Say("right" if self.answers[question] % 2 else "wrong")


def configuration(folder: Path, *, port: int, inference_url: str) -> dict[str, Any]:
    """The guide's sections with the test's model."""
    rows = [{"id": f"{number}", "question": f"question {number}", "answer": "right"} for number in range(2)]
    (folder / "train.json").write_text(json.dumps(rows))
    return {
        "llms": {
            "training_llm": {
                "_type": "openai",
                "model_name": NAME,
                "base_url": inference_url,
                "api_key": "default",
            }
        },
        "workflow": {"_type": "tool_agent", "llm": "training_llm"},
        "eval": {
            "general": {"max_concurrency": 1, "dataset": {"_type": "json", "file_path": str(folder / "train.json")}},
            "evaluators": {"match": {"_type": "exact_match"}},
        },
        "trajectory_builders": {"art_builder": {"_type": "openpipe_art_traj_builder", "num_generations": 2}},
        "trainer_adapters": {
            "art_adapter": {
                "_type": "openpipe_art_trainer_adapter",
                "backend": {
                    "ip": "127.0.0.1",
                    "port": port,
                    "name": NAME,
                    "project": "my_project",
                    "base_model": "base",
                    "api_key": "default",
                    "delete_old_checkpoints": True,
                    "init_args": {"max_seq_length": 8192},
                },
                "training": {"learning_rate": LEARNING_RATE, "beta": BETA},
            }
        },
        "trainers": {"art_trainer": {"_type": "openpipe_art_trainer"}},
        "finetuning": {
            "enabled": True,
            "trainer": "art_trainer",
            "trajectory_builder": "art_builder",
            "trainer_adapter": "art_adapter",
            "reward_function": {"name": "match"},
            "num_epochs": 2,
            "output_dir": str(folder / "output"),
        },
    }


async def finetune(folder: Path, config: dict[str, Any]) -> RunResult:
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    return await run_finetuning(FinetuneRunConfig(config_file=folder / "config.yml"))


@contextmanager
def application(environment: str, folder: Path, inference_url: str) -> Iterator[int]:
    """The application `art run` of that environment; gives its port once it answers."""
    port = free_port()
    settings = {
        "host": "127.0.0.1",
        "port": str(port),
        "log": str(folder / "given.jsonl"),
        "inference_url": inference_url,
    }
    with (folder / "art_run.log").open("w") as log:
        process = scripts.start("art_run", environment, settings, folder, log)
        try:
            scripts.until_it_listens(port, process)
            yield port
        finally:
            process.kill()
            process.wait()


@asynccontextmanager
async def stage(environment: str, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """The application, an inference server and the agent; gives the configuration of a run."""
    async with OpenAIServer(Policy()) as inference:
        inference.models = [NAME]
        with pushed_catalog(), application(environment, folder, inference.base_url) as port:
            register_tool_agent()
            yield configuration(folder, port=port, inference_url=inference.base_url)


def given(folder: Path, call: str) -> list[dict[str, Any]]:
    """The fake's arguments in all calls of this kind."""
    lines = map(json.loads, (folder / "given.jsonl").read_text().splitlines())
    return [line for line in lines if line["call"] == call]


def messages_in(call: dict[str, Any]) -> list[Any]:
    """The first conversation of a training call."""
    return call["groups"][0]["trajectories"][0]["messages_and_choices"]


@pytest.mark.parametrize(("environment", "kind", "beta"), [("art-0.5.0", "Choice", BETA), ("nat-1.9.0", None, None)])
async def test_the_application_trains_on_what_our_plug_in_sends(
    environment: str, kind: str | None, beta: float | None, table: Table, tmp_path: Path
) -> None:
    """Two epochs complete; groups, rewards, roles, sampled tokens and numbers of the YAML arrive unchanged.

    0.5.0 converts each answer to its own `Choice`, which it trains on, and accepts beta. 0.5.17 keeps a plain dict,
    which its real GPU part ignores, and does not accept beta.
    """
    role = "server of our plug-in (`art run`, its GPU part replaced by a fake)"
    did = "our plug-in registered, played two epochs, deleted old checkpoints, trained; the stream gave the metrics"
    with table.proof("openpipe-art", environment, role, did) as row:
        async with stage(environment, tmp_path) as config:
            result = await finetune(tmp_path, config)
        assert [status.status for status in result.statuses] == ["completed", "completed"]
        first, second = given(tmp_path, "train")
        row.versions = given(tmp_path, "started")[0]["versions"]
        assert first["model"]["type"] == "TrainableModel"
        assert (first["model"]["name"], first["model"]["base_model"]) == (NAME, "base")
        assert first["model"]["_internal_config"]["init_args"] == {"max_seq_length": 8192}
        assert (first["config"]["learning_rate"], first["config"].get("beta")) == (LEARNING_RATE, beta)
        assert [group["type"] for group in first["groups"]] == ["TrajectoryGroup"] * 2
        for group in first["groups"] + second["groups"]:
            assert sorted(each["reward"] for each in group["trajectories"]) == [0.0, 1.0]
        said = messages_in(first)
        assert [each.get("role", "choice") for each in said] == ["system", "user", "choice", "tool", "choice"]
        assert said[3] == {"role": "tool", "tool_call_id": "call_1", "content": "it is right"}
        assert said[2]["message"]["tool_calls"][0]["function"]["name"] == "look_up"
        assert [said[2].get("type"), said[4].get("type")] == [kind, kind]
        tokens = said[4]["logprobs"]["content"]
        assert all(token["token"].startswith("token_id:") and token["logprob"] < 0 for token in tokens)
        assert given(tmp_path, "delete"), "old checkpoints were deleted by the route that this version has"


async def test_a_broken_stream_fails_the_run_with_the_reason(tmp_path: Path) -> None:
    """The third call fails after its header was sent, and the run reports the failure."""
    async with stage("art-0.5.0", tmp_path) as config:
        config["finetuning"]["num_epochs"] = 3
        with pytest.raises(NatError, match="broke the stream off"):
            await finetune(tmp_path, config)
    assert len(given(tmp_path, "train")) == 3
