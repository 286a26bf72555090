"""The adapter against a server with the services' routes."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager

import pytest

from fakes.customizer_server import FakeCustomizer
from fakes.preference_pairs import collection, game, pair
from nat.capture.context import Redirects, address_of
from nat.data_models.finetuning import FinetuneConfig, TrainingJobRef, TrainingStatusEnum
from nat.errors import BackendError, BackendUnreachable, NoLearningSignal, TrainingFailed
from nat.http.service import ServiceRefused
from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerAdapterConfig
from nat.plugins.customizer.dpo.service import connected
from nat.plugins.customizer.dpo.trainer_adapter import NeMoCustomizerTrainerAdapter
from nat.plugins.llms.openai import OpenAIModelConfig

JOBS = "/v1/customization/jobs"
RUNNING = {"status": "running"}


async def no_wait(seconds):
    """In place of the wait before a retry."""


@asynccontextmanager
async def adapter_of(server, *, initialized=True, seed=7, llms=None, redirects=None, target=None, **settings):
    """An adapter of the server that polls quickly."""
    given = {
        "entity_host": server.base_url,
        "datastore_host": server.base_url,
        "namespace": "team",
        "customization_config": "meta/llama-3.2-1b-instruct@v1.0.0+A100",
        "poll_interval_seconds": 0.01,
        **settings,
    }
    config = NeMoCustomizerTrainerAdapterConfig(**given)
    async with connected(config, sleep=no_wait) as service:
        adapter = NeMoCustomizerTrainerAdapter(config, service=service, llms=llms or {}, redirects=redirects)
        run = FinetuneConfig(seed=seed, target_model=target)
        if initialized:
            await adapter.initialize(run)
        else:
            adapter.run_config = run
        yield adapter


async def trained(server, **settings):
    """The final status of a job with some pairs."""
    async with adapter_of(server, **settings) as adapter:
        return await adapter.wait_until_complete(await adapter.submit(collection(*game())))


async def test_the_whole_way_with_an_empty_token():
    """The default `hf_token` is empty; no header is sent, and pairs are uploaded, trained on and waited for."""
    async with FakeCustomizer() as server:
        status = await trained(server)
        assert status.status is TrainingStatusEnum.COMPLETED
        assert all("authorization" not in request.headers for request in server.requests)
        (repository,) = server.repositories
        training = server.rows(repository, "training/training_file.jsonl")
        validation = server.rows(repository, "validation/validation_file.jsonl")
    assert (len(training), len(validation)) == (32, 8)
    assert set(training[0]) == {"prompt", "chosen_response", "rejected_response"}


async def test_the_job_names_its_model_its_name_and_its_seed():
    """Without `output_model` a service makes files only; a name finds the job again; the seed repeats it."""
    async with FakeCustomizer() as server:
        await trained(server, seed=11)
        (job,) = server.bodies(JOBS)
    assert job["output_model"] == "team/nat-dpo-nemo_dpo_1"
    assert (job["name"], job["namespace"]) == ("nat-dpo-nemo_dpo_1", "team")
    assert job["hyperparameters"]["seed"] == 11
    assert job["config"] == "meta/llama-3.2-1b-instruct@v1.0.0+A100"
    assert job["dataset"] == {"name": "nat-dpo-nemo_dpo_1", "namespace": "team"}
    assert job["hyperparameters"]["dpo"]["ref_policy_kl_penalty"] == 0.1


async def test_output_model_is_sent_as_set():
    """`output_model` replaces the name that is made of dataset and run."""
    async with FakeCustomizer() as server:
        await trained(server, output_model="team/mine")
        assert server.jobs[0]["output_model"] == "team/mine"


async def test_each_run_has_its_own_dataset():
    """Two runs at once do not train on each other's pairs; nor do two jobs of one run."""
    async with FakeCustomizer() as server, adapter_of(server) as one, adapter_of(server) as other:
        refs = await asyncio.gather(
            one.submit(collection(*game(), run_id="r1")), other.submit(collection(*game(), run_id="r2"))
        )
        await one.wait_until_complete(refs[0])
        await one.submit(collection(*game(), run_id="r1"))
        assert sorted(server.repositories) == ["team/nat-dpo-r1", "team/nat-dpo-r1-2", "team/nat-dpo-r2"]
        assert {job["dataset"]["name"] for job in server.jobs} == {"nat-dpo-r1", "nat-dpo-r1-2", "nat-dpo-r2"}


@pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")  # huggingface_hub's
async def test_large_files_go_by_lfs():
    """A store that wants Git LFS gets the content at the address that it names, and a pointer in the commit."""
    async with FakeCustomizer(upload_mode="lfs", token="secret") as server:
        await trained(server, hf_token="secret")
        (repository,) = server.repositories
        assert len(server.rows(repository, "training/training_file.jsonl")) == 32
        puts = [request for request in server.requests if request.method == "PUT"]
    assert len(puts) == 2
    assert all("authorization" not in put.headers for put in puts)


async def test_a_job_that_does_not_end_is_canceled_at_the_deadline():
    """The wait has a deadline, `training_timeout_seconds`; the job does not run on unwatched."""
    async with FakeCustomizer(statuses=[RUNNING]) as server:
        with pytest.raises(TrainingFailed, match=r"cust-1 was not done within 0\.1 s"):
            await trained(server, training_timeout_seconds=0.1)
        assert server.canceled == ["cust-1"]


@pytest.mark.parametrize("word", ["unknown", "ready", "hibernating"])
async def test_an_unknown_status_is_shown_and_bounded(word, caplog):
    """A status that this client does not know is no progress: after some checks the run ends, and says the word."""
    async with FakeCustomizer(statuses=[{"status": word}]) as server:
        with pytest.raises(BackendError, match=f"3 times in a row; the last time: the status '{word}' is not known"):
            await trained(server)
        assert server.canceled == [], "it may go on well"
    assert f"check 1 of 3 failed: the status '{word}' is not known" in caplog.text


async def test_a_status_that_becomes_known_is_waited_for():
    """Only checks in a row count."""
    statuses = [{"status": "unknown"}, {"status": "unknown"}, RUNNING, {"status": "unknown"}, {"status": "completed"}]
    async with FakeCustomizer(statuses=statuses) as server:
        assert (await trained(server)).status is TrainingStatusEnum.COMPLETED


async def test_cancelling_goes_on_until_it_is_canceled():
    """`cancelling` is no end; `cancelled` is one, with the status CANCELED."""
    async with FakeCustomizer(statuses=[{"status": "cancelling"}, {"status": "cancelled"}]) as server:
        assert (await trained(server)).status is TrainingStatusEnum.CANCELED


async def test_a_service_without_progress(caplog):
    """Progress may be missing; a failure is then reported as it is."""
    caplog.set_level(logging.INFO)
    failed = {"status": "failed", "status_logs": [{"message": "out of memory", "detail": "rank 0"}]}
    async with FakeCustomizer(statuses=[RUNNING, {"status": "running", "percentage_done": 12.34}, failed]) as server:
        status = await trained(server)
    assert (status.status, status.progress) == (TrainingStatusEnum.FAILED, None)
    assert status.message == "Status: failed, out of memory: rank 0"
    assert "training job cust-1: Status: running, Progress: 12.3%" in caplog.text


async def test_failed_checks_are_no_failed_job():
    """A 503 is asked again; after some in a row the run ends with the job going on, not with a failed job."""
    passing = [(503, {"detail": "down"}), (500, {}), {"status": "completed"}]
    async with FakeCustomizer(statuses=passing) as server:
        assert (await trained(server)).status is TrainingStatusEnum.COMPLETED
    async with FakeCustomizer(statuses=[(503, {"detail": "down"})]) as server:
        with pytest.raises(BackendError, match="could not be read 3 times in a row") as raised:
            await trained(server)
        assert "resume" in str(raised.value.hint)
        assert server.canceled == []


async def test_a_refused_check_is_not_repeated():
    """A 404 or 403 stays one: the first ends the wait."""
    async with FakeCustomizer(statuses=[(404, {"detail": "Job not found"})]) as server:
        with pytest.raises(ServiceRefused, match="with 404: Job not found"):
            await trained(server)
        assert sum(path.endswith("/status") for path in server.paths) == 1


async def test_max_consecutive_status_failures_is_the_bound():
    """The bound counts checks in a row."""
    async with FakeCustomizer(statuses=[(503, {})]) as server:
        with pytest.raises(BackendError, match="1 times in a row"):
            await trained(server, max_consecutive_status_failures=1)


async def test_canceling_the_wait_cancels_the_job(caplog):
    """Ctrl-C stops what costs money, and says so."""
    async with FakeCustomizer(statuses=[RUNNING]) as server:
        task = asyncio.create_task(trained(server))
        await server.polled.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert server.canceled == ["cust-1"]
    assert "Training job cust-1 was canceled at the service" in caplog.text


async def test_canceling_the_submission_cancels_the_job():
    """Ctrl-C between the request and its answer leaves no job behind either."""
    async with FakeCustomizer() as server:
        server.creating = asyncio.Event()
        task = asyncio.create_task(trained(server))
        await server.accepted.wait()
        task.cancel()
        await asyncio.sleep(0)
        server.creating.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert server.canceled == ["cust-1"]


async def test_a_job_that_cannot_be_canceled_is_named(caplog):
    """If the service does not answer any more, the user learns that the job goes on."""
    async with FakeCustomizer(statuses=[RUNNING], refusals={f"POST {JOBS}/cust-1/cancel": (403, {})}) as server:
        with pytest.raises(TrainingFailed):
            await trained(server, training_timeout_seconds=0.05)
    assert "Training job cust-1 could not be canceled, so it goes on" in caplog.text


async def test_a_lost_answer_is_no_second_job():
    """A submission is never sent twice; without an answer the job is found by its name."""
    async with FakeCustomizer() as server:
        server.loses_answers = 1
        status = await trained(server)
        assert [job["id"] for job in server.jobs] == ["cust-1"]
    assert status.metadata["job_id"] == "cust-1"


async def test_a_refused_job_is_an_error():
    """The service's reason reaches the user."""
    refusal = {f"POST {JOBS}": (422, {"detail": "config not found"})}
    async with FakeCustomizer(refusals=refusal) as server:
        with pytest.raises(ServiceRefused, match="config not found"):
            await trained(server)


@pytest.mark.parametrize(
    ("options", "settings", "text"),
    [
        ({"token": "right"}, {"hf_token": "wrong"}, "set `hf_token`"),
        ({"token": "right"}, {}, "set `hf_token`"),
        ({"key": "right"}, {"api_key": "wrong"}, "set `api_key`"),
    ],
)
async def test_a_wrong_key_ends_the_run_before_the_first_rollout(options, settings, text):
    """`initialize` fails and `is_healthy` is false, with the field to set."""
    async with FakeCustomizer(**options) as server:
        with pytest.raises(ServiceRefused) as raised:
            await trained(server, **settings)
        assert text in str(raised.value.hint)
        async with adapter_of(server, initialized=False, **settings) as adapter:
            assert not await adapter.is_healthy()
        assert server.jobs == []


async def test_the_right_keys_are_sent():
    """The Data Store gets `hf_token`, the other services get `api_key`."""
    async with FakeCustomizer(token="data", key="entities") as server:
        async with adapter_of(server, hf_token="data", api_key="entities", create_namespace_if_missing=False) as one:
            assert await one.is_healthy()
        (repository, jobs) = (request.headers["authorization"] for request in server.requests[-2:][::-1])
    assert (repository, jobs) == ("Bearer data", "Bearer entities")


async def test_a_refused_connection_ends_the_run(caplog):
    """A service that does not listen is an error and unhealthy, not a debug line."""
    async with FakeCustomizer() as server:
        address = server.base_url
    nowhere = type("Nowhere", (), {"base_url": address})
    async with adapter_of(nowhere, initialized=False) as adapter:
        assert not await adapter.is_healthy()
    assert "NeMo Customizer (entity_host) did not answer" in caplog.text
    with pytest.raises(BackendUnreachable):
        await trained(nowhere, create_namespace_if_missing=False)


async def test_the_namespace_is_created_once_and_only_if_wanted():
    """A namespace that exists is none of our business; a failure to create it is an error."""
    async with FakeCustomizer() as server:
        for _ in range(2):
            async with adapter_of(server):
                pass
        assert server.paths.count("POST /v1/namespaces") == 2
        async with adapter_of(server, create_namespace_if_missing=False):
            pass
        assert server.paths.count("POST /v1/namespaces") == 2
    async with FakeCustomizer(refusals={"POST /v1/namespaces": (403, {"detail": "no"})}) as server:
        with pytest.raises(ServiceRefused, match="403: no"):
            await trained(server)


async def test_the_event_loop_runs_on():
    """While a service takes its time to answer, other tasks go on."""
    async with FakeCustomizer() as server:
        server.creating = asyncio.Event()
        async with adapter_of(server) as adapter:
            submitting = asyncio.create_task(adapter.submit(collection(*game())))
            await server.accepted.wait()
            await asyncio.sleep(0)
            assert not submitting.done()
            server.creating.set()
            await submitting


async def test_a_deployment_on_a_later_page_is_found():
    """The list of deployments is read to its end."""
    async with FakeCustomizer(other_deployments=7, page_size=3) as server:
        await trained(server, deploy_on_completion=True)
        (wanted,) = server.bodies("/v1/deployment/configs")
        assert wanted["model"] == "team/nat-dpo-nemo_dpo_1"
        assert wanted["name"] == "nat-deploy-config-nemo_dpo_1"
        assert server.deployments[-1]["name"] == "nat-deployment-nemo_dpo_1"


@pytest.mark.parametrize(
    ("options", "settings", "text"),
    [
        ({"deployment_statuses": ["failed"]}, {}, "ended as 'failed': It is failed."),
        ({"deployment_statuses": ["pending"]}, {"deployment_timeout_seconds": 0.1}, r"was not ready within 0\.1 s"),
        ({"output_model": False}, {}, "made no model, only files"),
    ],
)
async def test_a_deployment_that_fails_is_an_error(options, settings, text):
    """A run that should deploy and cannot does not end as if it had."""
    async with FakeCustomizer(**options) as server:
        with pytest.raises(BackendError, match=text):
            await trained(server, deploy_on_completion=True, **settings)


async def test_a_taken_name_of_a_deployment_is_an_error():
    """A deployment of that name serves another model."""
    async with FakeCustomizer() as server:
        deployment = {"deployment_name": "mine"}
        settings = {"deploy_on_completion": True, "deployment_config": deployment}
        await trained(server, **settings)
        async with adapter_of(server, **settings) as adapter:
            ref = await adapter.submit(collection(*game(), run_id="r2"))
            with pytest.raises(ServiceRefused, match="Deployment already exists"):
                await adapter.wait_until_complete(ref)


async def test_the_workflow_calls_the_deployed_model():
    """After the deployment the trained LLM's requests go to the new model, and the adapter says how to use it."""
    async with FakeCustomizer() as server:
        same = OpenAIModelConfig(model_name="meta/llama", base_url=f"{server.base_url}/v1")
        llms = {"student": same, "opponent": same}
        redirects = Redirects()
        options = {"deploy_on_completion": True, "llms": llms, "redirects": redirects}
        async with adapter_of(server, target="student", **options) as adapter:
            assert adapter.no_verdict() is None
            await adapter.wait_until_complete(await adapter.submit(collection(*game())))
            served = await adapter.served_model()
        model = "team/nat-dpo-nemo_dpo_1"
        asked = [redirects.name(address_of(server.base_url), "meta/llama", llm) for llm in ("student", "opponent")]
        assert asked == [model, "meta/llama"]
        assert (served.name, served.overrides) == (model, (("llms.student.model_name", model),))


async def test_why_there_can_be_no_verdict():
    """Without a deployment, or without an LLM on its server, the reason is known before the first rollout."""
    llms = dict.fromkeys(("a", "b"), OpenAIModelConfig(model_name="m", base_url="http://h/v1"))
    async with FakeCustomizer() as server:
        for settings, text in (
            ({}, "the trained model is not deployed"),
            ({"deploy_on_completion": True}, "the configuration has no LLM with a base_url"),
            ({"deploy_on_completion": True, "llms": llms}, "has several LLMs (a, b); set finetuning.target_model"),
            ({"deploy_on_completion": True, "llms": llms, "target": "c"}, "that finetuning.target_model 'c' names"),
        ):
            async with adapter_of(server, **settings) as adapter:
                assert text in str(adapter.no_verdict())
        async with adapter_of(server, deploy_on_completion=True, llms=llms, target="a") as adapter:
            assert adapter.no_verdict() is None


async def test_a_model_that_the_llms_server_does_not_list_is_not_judged():
    """A deployment elsewhere is told with its URL."""
    async with FakeCustomizer() as server, FakeCustomizer(models=["base"]) as elsewhere:
        llms = {"student": OpenAIModelConfig(model_name="base", base_url=f"{elsewhere.base_url}/v1")}
        async with adapter_of(server, deploy_on_completion=True, llms=llms) as adapter:
            await adapter.wait_until_complete(await adapter.submit(collection(*game())))
            reason = adapter.no_verdict()
            assert await adapter.served_model() is None
    assert "is deployed at http://nim/nat-deployment-nemo_dpo_1, but the server of llms.student" in reason
    assert reason.endswith("lists base")


async def test_a_job_is_known_by_its_reference_alone():
    """Another process can ask for the status and wait."""
    async with FakeCustomizer() as server:
        async with adapter_of(server) as one:
            ref = await one.submit(collection(*game()))
        async with adapter_of(server) as other:
            again = TrainingJobRef.model_validate_json(ref.model_dump_json())
            assert (await other.status(again)).status is TrainingStatusEnum.RUNNING
            assert (await other.wait_until_complete(again)).status is TrainingStatusEnum.COMPLETED
            with pytest.raises(ValueError, match="No training job found for run x"):
                await other.status(TrainingJobRef(run_id="x", backend="nemo-customizer"))


async def test_a_run_submits_one_job_at_a_time():
    """As in the plug-in, a second submission of an active run is refused."""
    async with FakeCustomizer() as server, adapter_of(server) as adapter:
        await adapter.submit(collection(*game()))
        with pytest.raises(ValueError, match="already exists"):
            await adapter.submit(collection(*game()))


async def test_pairs_without_a_preference_are_refused_before_the_upload():
    """All ties: nothing is uploaded, nothing is paid."""
    async with FakeCustomizer() as server, adapter_of(server) as adapter:
        with pytest.raises(NoLearningSignal, match="2 x two candidates of a turn have equal scores"):
            await adapter.submit(collection(pair("a", scores=(1, 1)), pair("b", scores=(1, 1))))
        assert server.repositories == {}


async def test_sft_sends_demonstrations_and_no_dpo_settings():
    """`training_type: sft` gets rows that SFT reads."""
    async with FakeCustomizer() as server:
        await trained(server, hyperparameters={"training_type": "sft"})
        (repository,) = server.repositories
        rows = server.rows(repository, "training/training_file.jsonl")
        (job,) = server.bodies(JOBS)
    assert set(rows[0]) == {"prompt", "completion"}
    assert "dpo" not in job["hyperparameters"]


async def test_a_copy_of_the_files_is_kept(tmp_path):
    """`dataset_output_dir` has a folder per run."""
    async with FakeCustomizer() as server:
        await trained(server, dataset_output_dir=str(tmp_path))
    lines = (tmp_path / "nemo_dpo_1" / "training_file.jsonl").read_text().splitlines()
    assert len(lines) == 32
    assert len((tmp_path / "nemo_dpo_1" / "validation_file.jsonl").read_text().splitlines()) == 8


async def test_progress_lines(tmp_path):
    """`log_progress` appends to the plug-in's file."""
    async with FakeCustomizer() as server, adapter_of(server) as adapter:
        ref = TrainingJobRef(run_id="r", backend="nemo-customizer")
        adapter.log_progress(ref, {"loss": 1.5}, output_dir=str(tmp_path))
    line = json.loads((tmp_path / "nemo_customizer_r.jsonl").read_text())
    assert line["loss"] == 1.5
    assert line["config"]["namespace"] == "team"
