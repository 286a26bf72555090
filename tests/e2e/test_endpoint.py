"""Three processes: a training server, `nat serve` with the agent, and `nat finetune --endpoint`."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from fakes.processes import DEADLINE, NAT, Processes, environment_without, first_line, stop
from fakes.tiny_model import make_tiny_model

QUESTION = "say something"
AGENT = '''
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_evaluator, register_function
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.function import FunctionBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalOutputItem


class TalkerConfig(FunctionBaseConfig, name="talker"):
    llm: LLMRef


@register_function(config_type=TalkerConfig)
async def talker(config, builder):
    client = await builder.get_llm(config.llm, wrapper_type="openai")

    async def talk(question: str) -> str:
        """Says one token."""
        messages = [{"role": "user", "content": question}]
        reply = await client.chat.completions.create(model=client.model_name, messages=messages, max_tokens=1)
        return reply.choices[0].message.content or " "

    yield FunctionInfo.from_fn(talk)


class EvenConfig(EvaluatorBaseConfig, name="even"):
    pass


class Even(BaseEvaluator):
    async def evaluate_item(self, item):
        return EvalOutputItem(id=item.id, score=float(ord(item.output_obj[0]) % 2 == 0), reasoning="")


@register_evaluator(config_type=EvenConfig)
async def even(config, builder):
    yield EvaluatorInfo(config=config, evaluate_fn=Even().evaluate, description="Likes even bytes.")
'''
Start = Callable[..., subprocess.Popen]


@pytest.fixture(scope="module")
def start(tmp_path_factory, forked_processes_of_this_run) -> Iterator[Start]:
    """Start `nat` with the agent registered; processes that a test leaves running are killed."""
    folder = tmp_path_factory.mktemp("agent")
    (folder / "talker_agent.py").write_text(AGENT)
    environment = environment_without("NAT_") | forked_processes_of_this_run
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [environment.get("PYTHONPATH")])])
    with Processes() as processes:
        code = f"import talker_agent; {NAT}"
        yield lambda *arguments: processes.start("-c", code, *arguments, cwd=folder, env=environment)


@pytest.fixture(scope="module")
def ports(tmp_path_factory, start) -> Iterator[dict[str, int]]:
    """The ports of a training server, on which each test trains a model of its own."""
    folder = tmp_path_factory.mktemp("backend")
    make_tiny_model(folder / "tiny")
    options = ("--port=0", "--inference_port=0", "--threads=1", f"--output_dir={folder / 'art'}")
    backend = start("backend", "serve", f"--model={folder / 'tiny'}", *options)
    yield json.loads(first_line(backend))
    stop(backend)


def configuration(folder: Path, ports: dict[str, int], *, name: str, served_name: str, sampling: dict | None) -> Path:
    for file, count in (("train.json", 4), ("held_out.json", 64)):
        rows = [{"id": f"{file} {n}", "question": QUESTION, "answer": ""} for n in range(count)]
        (folder / file).write_text(json.dumps(rows))
    config = {
        "llms": {
            "student": {
                "_type": "openai",
                "model_name": served_name,
                "base_url": f"http://127.0.0.1:{ports['inference_port']}/v1",
                "api_key": "default",
            }
        },
        "workflow": {"_type": "talker", "llm": "student"},
        "eval": {
            "general": {"max_concurrency": 16, "dataset": {"_type": "json", "file_path": str(folder / "train.json")}},
            "evaluators": {"even": {"_type": "even"}},
        },
        "trajectory_builders": {"builder": {"_type": "openpipe_art_traj_builder", "num_generations": 16}},
        "trainer_adapters": {
            "adapter": {
                "_type": "openpipe_art_trainer_adapter",
                "backend": {"ip": "127.0.0.1", "port": ports["port"], "name": name, "base_model": "tiny"},
                "training": {"learning_rate": 1e-2, "beta": 0.0},
            }
        },
        "trainers": {"trainer": {"_type": "openpipe_art_trainer"}},
        "finetuning": {
            "enabled": True,
            "trainer": "trainer",
            "trajectory_builder": "builder",
            "trainer_adapter": "adapter",
            "reward_function": {"name": "even"},
            "num_epochs": 4,
            "output_dir": str(folder / "runs"),
            "sampling_in_training": sampling,
        },
    }
    path = folder / "config.yml"
    path.write_text(yaml.safe_dump(config))
    return path


def share_of_even(url: str) -> float:
    """The share of rewarded answers of the served agent."""
    with httpx.Client(base_url=url, trust_env=False, timeout=DEADLINE) as client:
        answers = [client.post("/generate", json={"question": QUESTION}).json()["value"] for _ in range(64)]
    return sum(ord(answer[0]) % 2 == 0 for answer in answers) / len(answers)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("served_name", "sampling"),
    [("tiny", None), ("talking", {"temperature": 0.8})],
    ids=["asks for the base model", "asks for the trained one, sampled colder in training"],
)
def test_the_agent_behind_the_url_gets_better(tmp_path, start, ports, served_name, sampling):
    """Rollouts of the served agent train the model here: its held-out scores rise, and it samples the new weights.

    During the run, both names select the trained model; afterwards only its own name does.
    The server trains answers at the temperature at which it sampled them.
    """
    name = "chatting" if served_name == "tiny" else served_name
    config = configuration(tmp_path, ports, name=name, served_name=served_name, sampling=sampling)
    agent = start("serve", f"--config_file={config}", "--port=0")
    [url] = re.findall(r"at (http://localhost:\d+) ", first_line(agent))

    before = share_of_even(url) if served_name == "tiny" else None
    run = start(
        *("finetune", f"--config_file={config}", f"--endpoint={url}", "--endpoint_timeout=60"),
        *(f"--validation_dataset={tmp_path / 'held_out.json'}", "--json"),
    )
    told, log = run.communicate(timeout=DEADLINE)
    assert run.returncode == 0, log
    summary = json.loads(told)
    assert summary["served_model"].startswith(f"{name}@4 at ")
    assert summary["verdict"] == "improved", summary
    for line in (tmp_path / "runs" / "latest" / "training_metrics.jsonl").read_text().splitlines():
        metrics = json.loads(line)["metrics"]
        assert (metrics["drift/untempered_calls"], metrics["drift/untrainable_calls"]) == (0, 0)
        assert metrics["train/loss/sampler_logprob_difference"] < 1e-4
    after = share_of_even(url)
    if before is None:
        assert after == pytest.approx(summary["after"], abs=0.25)
        assert after > summary["before"]
    else:
        assert after == pytest.approx(before, abs=0.35)
    stop(agent)
