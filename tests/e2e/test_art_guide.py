"""The ART guide's two configurations load as printed, and `nat finetune` runs them."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fakes.art_server import FakeArtServer
from fakes.finetuning_project import Coin, blank_plot_process
from fakes.openai_server import Say
from fakes.processes import refused_port
from nat.art.client.config import ARTTrainerAdapterConfig
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function_info import FunctionInfo
from nat.cli.main import exit_code
from nat.cli.register_workflow import register_evaluator, register_function
from nat.config.load import load_config
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.function import FunctionBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalOutputItem
from nat.registry.catalog import pushed_catalog

GUIDE = Path(__file__).parents[1] / "fakes" / "guide_art"
BASE, RUN = "Qwen/Qwen2.5-3B-Instruct", "my_training_run"


class MyWorkflowConfig(FunctionBaseConfig, name="my_workflow"):
    llm: LLMRef


class MyCustomEvaluatorConfig(EvaluatorBaseConfig, name="my_custom_evaluator"):
    pass


class MyCustomEvaluator(BaseEvaluator):
    async def evaluate_item(self, item):
        return EvalOutputItem(id=item.id, score=float(item.output_obj == item.expected_output_obj), reasoning="")


@contextmanager
def registered() -> Iterator[None]:
    with pushed_catalog():

        @register_function(config_type=MyWorkflowConfig)
        async def my_workflow(config, builder):
            client = await builder.get_llm(config.llm, wrapper_type="openai")

            async def answer(question: str) -> str:
                messages = [{"role": "user", "content": question}]
                reply = await client.chat.completions.create(model=client.model_name, messages=messages)
                return reply.choices[0].message.content

            yield FunctionInfo.from_fn(answer, description="Answers.")

        @register_evaluator(config_type=MyCustomEvaluatorConfig)
        async def my_custom_evaluator(config, builder):
            evaluator = MyCustomEvaluator(max_concurrency=builder.get_max_concurrency())
            yield EvaluatorInfo(config=config, evaluate_fn=evaluator.evaluate, description="Exact.")

        yield


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A folder with the guide's data file; output goes where the guide says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nat.runs.plot.run_module", blank_plot_process)
    (tmp_path / "data").mkdir()
    rows = [{"id": f"{i:03}", "question": f"question {i}", "answer": "right"} for i in range(50)]
    (tmp_path / "data" / "training_data.json").write_text(json.dumps(rows))
    return tmp_path


async def finetune(server: FakeArtServer, *more: str, config: str = "finetune.yml") -> int:
    """Run the command in a thread, with the ports that were free."""
    adapter = "trainer_adapters.art_adapter.backend"
    overrides = {"llms.training_llm.base_url": server.inference.base_url, f"{adapter}.port": str(server.port)}
    options = [part for key, value in overrides.items() for part in ("-o", key, value)]
    with registered():
        return await asyncio.to_thread(exit_code, ["finetune", f"--config_file={GUIDE / config}", *options, *more])


def test_the_guides_ports_and_defaults_are_as_written():
    """The first configuration loads unchanged, with the documented defaults for omitted fields."""
    with registered():
        config = load_config(GUIDE / "finetune.yml")
    adapter = config.trainer_adapters["art_adapter"]
    assert isinstance(adapter, ARTTrainerAdapterConfig)
    assert adapter.backend.base_url == "http://localhost:7623"
    assert config.llms["training_llm"].model_dump()["base_url"] == "http://localhost:8000/v1"
    assert adapter.training is not None
    assert (adapter.training.learning_rate, adapter.training.beta) == (1e-6, 0.0)
    assert adapter.backend.init_args is None
    assert config.trajectory_builders["art_builder"].model_dump()["num_generations"] == 2


def test_the_guides_reference_configuration_loads():
    """The second configuration loads, with every block that the guide lists."""
    adapter = load_config(GUIDE / "adapter.yml").trainer_adapters["art_adapter"]
    assert isinstance(adapter, ARTTrainerAdapterConfig)
    backend = adapter.backend
    assert (backend.base_url, backend.name, backend.delete_old_checkpoints) == (
        "http://localhost:7623",
        "training_run_name",
        False,
    )
    assert backend.init_args is not None
    assert backend.init_args.max_seq_length == 8192
    assert backend.engine_args is not None
    assert backend.engine_args == {"gpu_memory_utilization": 0.9, "tensor_parallel_size": 1}


async def test_what_the_server_ignores_is_said_in_the_terminal(project, capsys):
    """Settings without effect on the server are warnings of the plan and of the run."""
    note = "These have no effect on this server: engine_args.tensor_parallel_size."
    told = {"base_model": "Qwen2.5-3B-Instruct", "notes": [note]}
    async with FakeArtServer(Coin(), serving=told) as server:
        assert await finetune(server, "--dry_run") == 0
        assert note in " ".join(capsys.readouterr().out.split())
        assert await finetune(server, "-o", "finetuning.num_epochs", "1") == 0
    assert note in " ".join("".join(capsys.readouterr()).split())


@pytest.mark.slow
async def test_the_guides_run(project, capsys):
    """Twenty epochs of fifty examples with two generations give the guide's log lines and files."""
    async with FakeArtServer(Coin()) as server:
        assert await finetune(server) == 0
        place = server.inference.base_url
    shown = capsys.readouterr()
    log = (project / ".tmp/nat/finetuning/output/latest/run.log").read_text()
    [run_id] = set(re.findall(r"art_run_[0-9a-f]{8}", log))
    for line in (
        f"Starting epoch 1 for run {run_id}",
        f"Starting 2 evaluation runs for run_id: {run_id}",
        f"Built 100 trajectories across 50 examples for run_id: {run_id}",
        "Submitted 100 trajectories in 50 groups for training",
        "Epoch 1 progress logged - Avg Reward: 0.5000, Trajectories: 100",
        f"Training {run_id} completed successfully.",
        "Completed epoch 1/20",
        "Completed epoch 20/20",
        "Successfully registered with ART backend.",
        f"llms.training_llm names {BASE}; during the run, its requests use {RUN}",
        "llms.training_llm samples with temperature 0.4",
    ):
        assert f" - {line}" in log
    assert f"{RUN}@20 at {place}" in shown.out
    assert f"-o llms.training_llm.model_name {RUN} " in shown.out
    output = project / ".tmp/nat/finetuning/output"
    for name in ("training_metrics.jsonl", "reward_history.json", "reward_plot.png"):
        assert (output / name).is_file()
    metrics = json.loads((output / "training_metrics.jsonl").read_text().splitlines()[0])
    assert (metrics["run_id"], metrics["metrics"]["train/loss"]) == (run_id, 0.5)
    assert json.loads((output / "summary.json").read_text())["served_model"].startswith(f"{RUN}@20 at ")


async def test_the_guides_run_sends_the_sampled_tokens(project):
    """The workflow samples the trained model, and training uses exactly the sampled token ids."""
    async with FakeArtServer(Coin()) as server:
        assert await finetune(server, "-o", "finetuning.num_epochs", "2") == 0
        assert {body["model"] for body in server.inference.bodies} == {RUN}
        assert [len(batch["trajectory_groups"]) for batch in server.batches] == [50, 50]
        batch = server.batches[0]
        assert batch["config"] == {"learning_rate": 1e-6, "beta": 0.0, "kl_penalty_coef": 0.0}
        question, choice = batch["trajectory_groups"][0]["trajectories"][0]["messages_and_choices"]
        assert question == {"role": "user", "content": "question 0"}
        assert choice["message"]["role"] == "assistant"
        assert choice["logprobs"]["content"][0]["token"].startswith("token_id:")


async def test_one_generation_trains_across_examples_with_one_warning(project, capsys):
    """The toolkit's own example: all rollouts of an epoch are one group, and the run says what that compares."""

    def every_second(request):
        return Say("right" if request.last_text[-1] in "02468" else "wrong")

    async with FakeArtServer(every_second) as server:
        more = ("-o", "trajectory_builders.art_builder.num_generations", "1", "-o", "finetuning.num_epochs", "3")
        assert await finetune(server, *more) == 0
        assert [[len(g["trajectories"]) for g in batch["trajectory_groups"]] for batch in server.batches] == [[50]] * 3
    shown = " ".join("".join(capsys.readouterr()).split())
    assert shown.count("num_generations is 1") == 1
    assert "compared across all examples" in shown
    assert "Too few groups" not in shown


async def test_held_out_examples_are_played_with_the_trained_model(project):
    """Both validations sample the trained model; the base model would show no progress."""
    rows = [{"id": f"{i}", "question": f"held-out {i}", "answer": "right"} for i in range(4)]
    (project / "data" / "val.json").write_text(json.dumps(rows))
    async with FakeArtServer(Coin()) as server:
        more = ("-o", "finetuning.num_epochs", "1", "--validation_dataset", "data/val.json")
        assert await finetune(server, *more) == 0
        held_out = [body for body in server.inference.bodies if "held-out" in body["messages"][0]["content"]]
    assert len(held_out) == 8
    assert {body["model"] for body in held_out} == {RUN}


async def test_a_dry_run_registers_the_model_and_trains_nothing(project, capsys):
    """A dry run registers the model and checks the server's health."""
    async with FakeArtServer(Coin()) as server:
        assert await finetune(server, "--dry_run") == 0
        assert server.paths[:4] == [
            "/healthcheck",
            "/_train_model",
            "/register",
            "/_prepare_backend_for_training",
        ]
        assert server.batches == []
    assert "openpipe_art_traj_builder → openpipe_art_trainer_adapter" in capsys.readouterr().out


async def test_a_missing_server_is_reported_before_the_first_rollout(project, capsys):
    """The error has the guide's words, the address and a remedy."""
    async with FakeArtServer(Coin()) as server:
        pass
    with registered(), refused_port() as port:
        arguments = ["finetune", f"--config_file={GUIDE / 'finetune.yml'}"]
        options = ["-o", "trainer_adapters.art_adapter.backend.port", str(port)]
        assert await asyncio.to_thread(exit_code, [*arguments, *options]) == 1
    shown = capsys.readouterr().err
    assert "Failed to connect to ART backend." in shown
    assert "nat backend serve" in shown
    assert server.inference.requests == []


async def test_a_broken_stream_fails_the_run(project, capsys):
    """The exit code is 1, and the error quotes the server."""
    failure = {"message": "out of memory on the GPU", "hint": "lower max_seq_length"}
    async with FakeArtServer(Coin(), breaks_after=1, failure=failure) as server:
        assert await finetune(server) == 1
    shown = capsys.readouterr().err
    assert "Training failed with error: out of memory on the GPU" in shown
    assert "lower max_seq_length" in shown
