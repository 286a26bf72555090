"""The adapter and its session, against a server on real sockets."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from fakes.art_server import FakeArtServer
from fakes.llm_steps import call, steps, user
from fakes.run_records import NOON, job_record
from nat.art.client.config import ARTTrainerAdapterConfig
from nat.art.client.trainer_adapter import ARTTrainerAdapter
from nat.capture.context import address_of, redirecting, served_name
from nat.data_models.finetuning import (
    FinetuneConfig,
    RewardFunctionConfig,
    TrainingStatusEnum,
    Trajectory,
    TrajectoryCollection,
)
from nat.data_models.llm import ModelEndpoint
from nat.errors import BackendUnreachable, ConfigError
from nat.finetuning.run_log import RunLog
from nat.finetuning.trajectories.calls import calls_of
from nat.finetuning.trajectories.episodes import episode
from nat.finetuning.trajectories.messages import conversations
from nat.rollout.session import in_pass
from nat.runs.journal import Journal

WHERE = {"name": "my_run", "project": "my_project", "base_model": "tiny"}


@asynccontextmanager
async def opened(
    server: FakeArtServer, *, training=None, seconds=60.0, model="tiny", others=(), **backend
) -> AsyncIterator[ARTTrainerAdapter]:
    """An adapter before `initialize`; its LLMs, the `student` and `others`, ask the server for the base model."""
    config = ARTTrainerAdapterConfig(
        backend={"ip": "127.0.0.1", "port": server.port, **WHERE, **backend}, training=training, timeout=seconds
    )
    llms = dict.fromkeys(("student", *others), ModelEndpoint(model, server.inference.base_url, {}))
    with redirecting() as redirects:
        adapter = ARTTrainerAdapter(config, llms=llms, redirects=redirects)
        try:
            yield adapter
        finally:
            await adapter.close()


@asynccontextmanager
async def connected(server: FakeArtServer, **options) -> AsyncIterator[ARTTrainerAdapter]:
    async with opened(server, **options) as adapter:
        await adapter.initialize(FinetuneConfig())
        yield adapter


def trajectory(reward: float, text: str = "a") -> Trajectory:
    seen = calls_of(steps(call([user("u")], text, ids=([1], [2]), llm_name="student")))
    return Trajectory(episode=episode(conversations(seen)), reward=reward, metadata={"id": "007", "generation": 0})


def collection(*groups: list[Trajectory]) -> TrajectoryCollection:
    return TrajectoryCollection(trajectories=list(groups) or [[trajectory(0.0), trajectory(1.0)]], run_id="art_run_1")


def asked_for(server: FakeArtServer, name: str, llm: str | None = "student") -> str:
    """The model name that a request for `name` sends to this server."""
    return served_name(address_of(server.inference.base_url), name, llm)


@contextmanager
def run_of(folder, job):
    """A run that has submitted this job."""
    with Journal.create(folder, "run", "", created_at=NOON) as journal:
        journal.record(job)
        with in_pass(run=RunLog(journal)):
            yield


async def test_an_update_from_submission_to_its_end():
    """The reference names the job, the status its metrics and the new weights."""
    async with FakeArtServer() as server, connected(server, training={"learning_rate": 1e-6, "beta": 0.1}) as adapter:
        ref = await adapter.submit(collection())
        assert (ref.run_id, ref.backend) == ("art_run_1", "openpipe-art")
        status = await adapter.wait_until_complete(ref)
        assert status.status is TrainingStatusEnum.COMPLETED
        assert (status.metadata or {})["policy_version"] == "my_run@1"
        assert (status.metadata or {})["metrics"]["loss"] == 0.5
        [batch] = server.batches
    assert batch["config"] == {"learning_rate": 1e-6, "beta": 0.1, "kl_penalty_coef": 0.0}
    assert [t["reward"] for t in batch["trajectory_groups"][0]["trajectories"]] == [0.0, 1.0]


@pytest.mark.parametrize(("trained", "calls"), [(True, 0), (False, 1)])
async def test_a_job_of_a_killed_run_is_not_trained_twice(tmp_path, trained, calls, caplog):
    """The server knows no jobs, so the step with which the job began tells whether it was trained."""
    async with FakeArtServer() as server, connected(server) as adapter:
        server.steps = 4 if trained else 3
        with run_of(tmp_path, job_record("run-000002", began_with="my_run@3")):
            ref = await adapter.submit(collection().model_copy(update={"job_id": "run-000002"}))
            status = await adapter.wait_until_complete(ref)
    assert status.status is TrainingStatusEnum.COMPLETED
    assert (status.metadata["policy_version"], status.metadata["began_with"]) == ("my_run@4", "my_run@3")
    assert len(server.batches) == calls
    assert ("run-000002 was trained before the run ended" in caplog.text) == trained
    assert (status.message == "Trained from my_run@3 before the run ended.") == trained


async def test_each_epoch_is_a_job_of_its_own():
    """All epochs share a run id; earlier jobs keep their end, and the run's newest job is found without an id."""
    async with FakeArtServer() as server, connected(server) as adapter:
        first = await adapter.submit(collection())
        await adapter.wait_until_complete(first)
        second = await adapter.submit(collection())
        await adapter.wait_until_complete(second)
        versions = [(await adapter.status(ref)).metadata["policy_version"] for ref in (first, first, second)]
        assert versions == ["my_run@1", "my_run@1", "my_run@2"]
        bare = second.model_copy(update={"metadata": None})
        assert (await adapter.status(bare)).metadata["policy_version"] == "my_run@2"
        assert list(adapter.training_jobs) == ["art_run_1"]


async def test_one_update_at_a_time():
    """A second update is refused while one runs, because its rollouts would be of outdated weights."""
    async with FakeArtServer() as server, connected(server) as adapter:
        server.hold = asyncio.Event()
        await adapter.submit(collection())
        await server.streaming.wait()
        with pytest.raises(ValueError, match="already in progress"):
            await adapter.submit(collection())


@pytest.mark.parametrize("waits", [False, True])
async def test_cancelling_closes_the_stream(waits):
    """Cancelling the job, or as Ctrl-C does the wait for it, closes the stream, so the server notices at once."""
    async with FakeArtServer() as server, connected(server) as adapter:
        server.hold = asyncio.Event()
        ref = await adapter.submit(collection())
        await server.streaming.wait()
        assert (await adapter.status(ref)).status is TrainingStatusEnum.RUNNING
        if waits:
            waiting = asyncio.create_task(adapter.wait_until_complete(ref))
            await asyncio.wait([waiting], timeout=0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert (await adapter.status(ref)).status is TrainingStatusEnum.CANCELED
        assert (await adapter.cancel(ref)).status is TrainingStatusEnum.CANCELED
        async with asyncio.timeout(10):
            await server.hung_up.wait()


async def test_closing_cancels_a_running_update():
    """Closing the adapter cancels its running update."""
    async with FakeArtServer() as server:
        async with connected(server) as adapter:
            server.hold = asyncio.Event()
            ref = await adapter.submit(collection())
            await server.streaming.wait()
        assert (await adapter.status(ref)).status is TrainingStatusEnum.CANCELED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"breaks_after": 1}, "broke the stream off"),
        ({"refusals": {"/_train_model": (409, {"detail": "my_run is being trained"})}}, "my_run is being trained"),
    ],
)
async def test_a_broken_stream_or_a_refused_batch_is_a_failed_job(options, words):
    """The status has the reason and the remedy; one of 200 says nothing of the end."""
    async with FakeArtServer(**options) as server, connected(server) as adapter:
        status = await adapter.wait_until_complete(await adapter.submit(collection()))
        assert status.status is TrainingStatusEnum.FAILED
        assert words in (status.message or "")
        assert "\n  → " in (status.message or "")


@pytest.mark.parametrize(
    ("lines", "metrics", "words"),
    [
        (
            [
                {"data/step_num_gradient_steps": 2, "loss": 1.0, "entropy": float("nan"), "note": "x"},
                {"data/step_num_gradient_steps": 2, "loss": 0.5, "data/step_num_groups_trainable": 3},
            ],
            {"loss": 0.75, "trained_groups": 3.0},
            "successfully.",
        ),
        ([], {"trained_groups": 0.0, "trained_tokens": 0.0}, "no gradient step"),
        ([{"num_gradient_steps": 0}], {"trained_groups": 0.0, "trained_tokens": 0.0}, "no gradient step"),
    ],
)
async def test_the_metrics_of_a_job_are_means_over_its_steps(lines, metrics, words):
    """What is no number is dropped; counts have the names of every backend, and are zero if nothing was trained."""
    async with FakeArtServer(lines=lines) as server, connected(server) as adapter:
        status = await adapter.wait_until_complete(await adapter.submit(collection()))
    found = (status.metadata or {})["metrics"]
    assert found.items() >= metrics.items()
    assert not found.keys() & {"entropy", "note"}
    assert words in (status.message or "")


async def test_progress_is_the_share_of_gradient_steps():
    """It counts the lines that have come."""
    async with FakeArtServer(lines=[{"num_gradient_steps": 4}]) as server, connected(server) as adapter:
        server.hold = asyncio.Event()
        ref = await adapter.submit(collection())
        await server.streaming.wait()
        async with asyncio.timeout(10):
            while (await adapter.status(ref)).progress != 25.0:  # noqa: ASYNC110 - a status is what users poll
                await asyncio.sleep(0.01)


async def test_an_update_must_be_done_in_time():
    """An update that exceeds `timeout` fails."""
    async with FakeArtServer() as server, connected(server, seconds=0.2) as adapter:
        server.hold = asyncio.Event()
        status = await adapter.wait_until_complete(await adapter.submit(collection()))
        assert status.status is TrainingStatusEnum.FAILED
        assert "`timeout` of the trainer adapter" in (status.message or "")


async def test_requests_are_redirected_to_the_trained_model():
    """Requests are redirected from the registration on; other names on that server are not."""
    async with FakeArtServer() as server, opened(server) as adapter:
        assert asked_for(server, "tiny") == "tiny"
        await adapter.initialize(FinetuneConfig())
        assert [asked_for(server, name) for name in ("tiny", "my_run", "judge")] == ["my_run", "my_run", "judge"]


async def test_an_opponent_stays_frozen():
    """With `target_model`, another LLM with the same base model keeps it; a client of the agent's own does not."""
    async with FakeArtServer() as server, opened(server, others=("opponent",)) as adapter:
        await adapter.initialize(FinetuneConfig(target_model="student"))
        assert [asked_for(server, "tiny", llm) for llm in ("student", "opponent", None)] == ["my_run", "tiny", "my_run"]
        assert (await adapter.served_model()).overrides == (("llms.student.model_name", "my_run"),)


async def test_an_inference_server_of_another_model_is_refused():
    """The inference port may belong to another server; the error names what it serves."""
    async with FakeArtServer(serves="other") as server, opened(server) as adapter:
        with pytest.raises(BackendUnreachable, match=r"does not serve 'my_run'; it serves tiny, other"):
            await adapter.initialize(FinetuneConfig())


async def test_the_best_checkpoint_is_never_deleted():
    """The step that was the newest when `keep_best` was called is kept until the next call."""
    async with FakeArtServer() as server, connected(server, delete_old_checkpoints=True) as adapter:
        await adapter.wait_until_complete(await adapter.submit(collection()))
        assert (await adapter.keep_best()).name == "my_run@1"
        for _ in range(2):
            await adapter.wait_until_complete(await adapter.submit(collection()))
    kept = [call.body["steps_to_keep"] for call in server.requests if call.path == "/_delete_checkpoint_files"]
    assert kept == [[0], [1], [1, 2]]


async def test_checkpoints_that_cannot_be_deleted_are_a_warning(caplog):
    """A checkpoint that cannot be deleted is a warning and does not fail the epoch."""
    refusals = {"/_delete_checkpoint_files": (500, "no")}
    async with FakeArtServer(refusals=refusals) as server, connected(server, delete_old_checkpoints=True) as adapter:
        status = await adapter.wait_until_complete(await adapter.submit(collection()))
    assert status.status is TrainingStatusEnum.COMPLETED
    assert "Old checkpoints could not be deleted" in caplog.text


async def test_health_covers_both_ports_and_the_model():
    """The adapter is healthy if control routes and inference answer with 200 and the model is served."""
    async with FakeArtServer() as server, connected(server) as adapter:
        assert await adapter.is_healthy()
        server.refusals["/healthcheck"] = (503, {"detail": "down"})
        assert not await adapter.is_healthy()
        del server.refusals["/healthcheck"]
        server.inference.models_status = 401
        assert not await adapter.is_healthy()
        server.inference.models_status, server.inference.models = 200, ["tiny"]
        assert not await adapter.is_healthy()


@pytest.mark.parametrize("asked", ["tiny", "my_run"])
async def test_another_base_model_is_an_error_before_the_first_rollout(asked):
    """Whether the LLM asks for the base model or for the run's name, a server that trains another one is refused."""
    config = {**WHERE, "base_model": asked if asked == "tiny" else "Qwen/Qwen2.5-3B-Instruct"}
    told = {"base_model": "small"}
    async with FakeArtServer(serving=told) as server, opened(server, model=asked, **config) as adapter:
        with pytest.raises(ConfigError, match=rf"base_model is '{config['base_model']}', but .* has 'small' alone"):
            await adapter.initialize(FinetuneConfig())


async def test_settings_without_effect_are_warnings_of_the_run():
    """What our server says of ignored settings is told where the user looks, as is the sampling."""
    note = "These have no effect on this server: engine_args.tensor_parallel_size."
    async with FakeArtServer(serving={"base_model": "tiny", "notes": [note]}) as server, connected(server) as adapter:
        assert list(adapter.warnings()) == [f"The ART server at {server.base_url}: {note}"]


async def test_left_out_trajectories_are_logged(caplog):
    """One rollout without tokens does not stop the epoch; the log names it."""
    silent = trajectory(0.5).model_copy(update={"episode": trajectory(0.5).episode[:1]})
    async with FakeArtServer() as server, connected(server) as adapter:
        await adapter.wait_until_complete(await adapter.submit(collection([silent, trajectory(1.0), trajectory(0.0)])))
        assert len(server.batches[0]["trajectory_groups"][0]["trajectories"]) == 2
    assert "A trajectory is left out: no answer of the trained model" in caplog.text
    assert "example 007" in caplog.text


async def test_registering_is_logged(caplog):
    """The log has the guide's line, and one for each redirected name."""
    caplog.set_level(logging.INFO)
    async with FakeArtServer() as server, connected(server):
        assert server.registered == {**WHERE, "trainable": True}
    assert "Successfully registered with ART backend." in caplog.text
    assert "llms.student names tiny" in caplog.text


async def test_progress_is_logged_to_a_file(tmp_path):
    """`trainer_adapter_<run id>.jsonl` has a line for each call, with the run's names."""
    async with FakeArtServer() as server, connected(server) as adapter:
        ref = await adapter.submit(collection())
        await adapter.wait_until_complete(ref)
        adapter.log_progress(ref, {"loss": 0.5}, str(tmp_path))
    line = json.loads((tmp_path / "trainer_adapter_art_run_1.jsonl").read_text())
    assert (line["run_id"], line["backend"], line["loss"]) == ("art_run_1", "openpipe-art", 0.5)
    assert line["trainer_config"] == WHERE


async def test_the_trained_model_stays_on_the_server():
    """The result has the model's name with its step, its URL and the overrides that use it."""
    async with FakeArtServer() as server, connected(server) as adapter:
        await adapter.wait_until_complete(await adapter.submit(collection()))
        served = await adapter.served_model()
        assert served is not None
        assert str(served) == f"my_run@1 at {server.inference.base_url}"
        assert served.overrides == (("llms.student.model_name", "my_run"),)
        assert await adapter.export_model("model") is None


@pytest.mark.parametrize("credit", ["per_step", "return_to_go"])
async def test_rewards_of_steps_cannot_be_sent(credit):
    """ART takes one reward per trajectory, so rewards of steps are an error before the first rollout."""
    reward = RewardFunctionConfig(name="match", credit=credit)
    async with FakeArtServer() as server, opened(server) as adapter:
        with pytest.raises(ConfigError, match=f"reward_function.credit: '{credit}', but ART takes one reward"):
            await adapter.initialize(FinetuneConfig(reward_function=reward))


async def test_overlap_needs_a_correction_for_earlier_weights():
    """Answers may be one update old, so the ratio or truncated importance sampling must compare with the sampler."""
    late = FinetuneConfig(max_staleness=1)
    wrong = {"precalculate_logprobs": True}
    async with FakeArtServer() as server:
        async with opened(server, training=wrong) as adapter:
            with pytest.raises(ConfigError, match="precalculate_logprobs: true, so nothing corrects"):
                await adapter.initialize(late)
            await adapter.initialize(FinetuneConfig())
        for training in (None, {**wrong, "truncated_importance_sampling": 2.0}):
            async with opened(server, training=training) as adapter:
                await adapter.initialize(late)
