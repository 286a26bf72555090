"""`general.telemetry.tracing` in training, `nat eval`, `nat run` and `nat serve`, against a server of OTLP."""

import time

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from fakes.otlp_server import OtlpServer
from fakes.scripted_workflow import ScriptedWorkflow
from fakes.served_workflow import serving
from nat.builder.context import Context, RuntimeTypeEnum
from nat.data_models.evaluate_runtime import EvaluationRunConfig
from nat.data_models.evaluator import EvalInputItem
from nat.errors import ConfigError
from nat.eval.evaluate import EvaluationRun
from nat.finetuning.runtime import RunResult
from nat.rollout.session import opened_session
from nat.runs.records import RunState

ROWS = [{"id": name, "question": name, "answer": "yes"} for name in ("yes", "no", "bad")]


async def echo(question: str):
    with Context.get().push_active_function("think", question):
        if question == "bad":
            raise ConnectionError("refused")
    return question


def traced(config: dict, endpoint: str, **fields) -> None:
    exporter = {"_type": "otelcollector", "project": "p", "endpoint": endpoint, **fields}
    config["general"] = {"telemetry": {"tracing": {"mine": exporter}}}


def scripted(folder, server: OtlpServer) -> ScriptedWorkflow:
    workflow = ScriptedWorkflow(folder, echo, ROWS)
    traced(workflow.config, server.endpoint)
    return workflow


async def trained(folder, endpoint: str, **fields) -> tuple[FinetuningProject, RunResult]:
    async with OpenAIServer(Coin(), fingerprint="v1") as model:
        project = FinetuningProject(folder, model)
        traced(project.config, endpoint, **fields)
        with project.registered():
            return project, await project.run(validation_dataset=str(project.held_out))


async def test_every_rollout_of_a_run_is_a_trace(tmp_path):
    """Each has one root with its place in the run, its weights and its reward, and one span for its call."""
    async with OtlpServer() as server:
        _, result = await trained(tmp_path, server.endpoint)
    roots = [span.attributes for span in server.roots]
    train = [root for root in roots if root["nat.finetune.purpose"] == "train"]
    places = [(r["nat.finetune.epoch"], r["nat.finetune.example_id"], r["nat.finetune.generation"]) for r in train]
    assert sorted(places) == [(e, f"{n:03}", g) for e in range(2) for n in range(4) for g in range(2)]
    assert {root["nat.finetune.run_id"] for root in roots} == {result.run_id}
    assert {root["nat.finetune.weight_version"] for root in roots} == {"v1"}
    assert sorted(root["nat.finetune.reward"] for root in train) == [0.0] * 8 + [1.0] * 8
    held_out = [root["nat.finetune.epoch"] for root in roots if root["nat.finetune.purpose"] == "validation"]
    assert sorted(held_out) == [0] * 8 + [2] * 8
    calls = server.named("chat tiny")
    assert sorted(call.trace for call in calls) == sorted(root.trace for root in server.roots)
    assert {call.parent for call in calls} == {root.id for root in server.roots}
    assert calls[0].attributes["llm.model_name"] == "tiny"


async def test_an_evaluation_sends_all_scores(tmp_path):
    """A rollout that failed has its error, no score, and what was inside it."""
    async with OtlpServer() as server:
        workflow = scripted(tmp_path, server)
        with workflow.registered():
            await EvaluationRun(EvaluationRunConfig(config_file=workflow.config_file)).run_and_evaluate()
    roots = {span.attributes["nat.finetune.example_id"]: span for span in server.roots}
    scores = {name: span.attributes.get("nat.evaluation.match") for name, span in roots.items()}
    assert scores == {"yes": 1.0, "no": 0.0, "bad": None}
    assert "ConnectionError: refused" in roots["bad"].error
    assert sorted(span.parent for span in server.named("think")) == sorted(root.id for root in server.roots)


async def test_a_single_input_is_a_trace(tmp_path):
    """`nat run` opens such a session; nobody judges its rollouts, so they are complete at once."""
    async with OtlpServer() as server:
        workflow = scripted(tmp_path, server)
        item = EvalInputItem(id="0", input_obj="hello", expected_output_obj=None)
        with workflow.registered():
            async with opened_session(workflow.config_file, runtime_type=RuntimeTypeEnum.RUN_OR_SERVE) as session:
                await session.run(item, seed=None)
    (root,) = server.roots
    assert (root.attributes["input.value"], root.attributes["output.value"]) == ("hello", "hello")


async def test_a_served_request_is_a_trace(tmp_path):
    """Also one whose workflow fails, and a streamed one."""
    async with OtlpServer() as server:
        async with serving(scripted(tmp_path, server)) as client:
            assert (await client.post("/generate", json={"question": "hi"})).json() == {"value": "hi"}
            assert (await client.post("/generate", json={"question": "bad"})).is_error
            await client.post("/generate/stream", json={"question": "piece"})
        assert sorted(root.error or "" for root in server.roots)[:2] == ["", ""]
        assert len(server.roots) == len(server.named("think")) == 3


@pytest.mark.parametrize("how", ["down", "broken", "slow"])
async def test_an_exporter_never_harms_a_run(tmp_path, caplog, how):
    """Down, broken or slow: the run ends as without it, and the log says so once."""
    statuses = [500] * 1000 if how == "broken" else []
    async with OtlpServer(statuses, delay=30.0 if how == "slow" else 0.0) as server:
        endpoint = "http://127.0.0.1:9/v1/traces" if how == "down" else server.endpoint
        began = time.monotonic()
        project, _ = await trained(tmp_path, endpoint, shutdown_timeout=0.2)
        assert time.monotonic() - began < 25
    with project.journal() as journal:
        assert journal.info().state is RunState.COMPLETED
    told = [record.msg for record in caplog.records if record.name.startswith("opentelemetry.exporter")]
    assert len(told) == len(set(told)) <= 3


async def test_a_wrong_exporter_starts_nothing(tmp_path):
    """No run folder is made, no model is loaded."""
    async with OpenAIServer() as model:
        project = FinetuningProject(tmp_path, model)
        project.config["general"] = {"telemetry": {"tracing": {"mine": {"_type": "langfuse", "endpoint": "http://x"}}}}
        with (
            project.registered(),
            pytest.raises(ConfigError, match=r"general\.telemetry\.tracing\.mine: set public_key"),
        ):
            await project.run()
    assert (project.built, project.output_dir.exists()) == (0, False)
