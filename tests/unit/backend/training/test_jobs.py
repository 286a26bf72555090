"""Jobs over HTTP: trained once and in turn, reported, cancelled, or refused with the place of the error."""

import asyncio
import errno
import threading
from pathlib import Path

import httpx
import pytest

from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.checkpoint_folder import TrainedJob
from nat.backend.forecast import Forecaster
from nat.backend.inference.engine import Engine
from nat.backend.inference.worker import Worker
from nat.backend.server.app import create_app
from nat.backend.server.training import training_router
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.jobs import TrainingJobs
from nat.wire.serving import ServeOptions
from nat.wire.training import JobState, JobStatus, SavedJobs, TrainingConfig, TrainingJob


class ScriptedLearner:
    """A learner that counts updates; each waits for `go` and reports until it is stopped, or fails as scripted."""

    def __init__(self):
        self.updates = 0
        self.step = 0
        self.go = threading.Event()
        self.begun = threading.Event()
        self.error = None

    def resolved(self, config):
        return resolve(config)

    def update(self, groups, resolved, *, report, on_step, **_):
        self.updates += 1
        self.begun.set()
        while not self.go.wait(0.005):
            report(50.0)
        if self.error is not None:
            raise self.error
        self.step += 1
        on_step({"loss": 0.75})
        on_step({"loss": 0.25})
        return {"loss": 0.5}


class CountedCheckpoints(Checkpoints):
    """Checkpoints that record the last job of each save instead of writing tensors; `gate` holds them back."""

    def __init__(self, folder):
        super().__init__(folder, keep_last=1)
        self.saves = []
        self.numbers_saved = []
        self.full = False
        self.gate = threading.Event()
        self.gate.set()

    def save(self, loaded, learner, job):
        assert self.gate.wait(30)
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.saves.append(job.state.id)
        self.numbers_saved.append(learner.step)
        return self.folder

    def find(self, number):
        return number if number in self.numbers_saved else None

    def numbers(self):
        return self.numbers_saved


@pytest.fixture
def learner():
    return ScriptedLearner()


@pytest.fixture
def saved(tmp_path):
    return CountedCheckpoints(tmp_path)


@pytest.fixture
def worker(loaded):
    return Worker(Engine(loaded, policy_version="me@0"))


@pytest.fixture
def jobs(worker, learner, saved, tmp_path):
    jobs = TrainingJobs(worker, learner, saved, output_dir=tmp_path)
    yield jobs
    jobs.close()


@pytest.fixture
async def http(worker, jobs):
    forecaster = Forecaster(ServeOptions(model=Path("me")), worker)
    app = create_app(worker, api_key="key", extra_routers=[training_router(jobs, forecaster)])
    headers = {"Authorization": "Bearer key"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://backend", headers=headers
    ) as client:
        yield client


@pytest.fixture
def job(loaded):
    return TrainingJob(id="job", groups=random_groups(loaded, groups=1, rollouts=2))


async def post(http, job):
    return await http.post("/v1/training/jobs", content=job.model_dump_json())


async def final(http, job_id="job"):
    answer = await http.get(f"/v1/training/jobs/{job_id}", params={"wait": 30})
    return JobState.model_validate_json(answer.content)


async def test_sent_twice_trained_once(http, learner, job, worker, monkeypatch):
    """The same job sent twice gives the same state; another batch with a known id is a conflict.

    Its metrics have what the chat template left out, too.
    """
    learner.go.set()
    monkeypatch.setattr(worker.loaded.tokenizer, "lost", {"tool message"})
    await post(http, job)
    first = await final(http)
    assert (first.status, first.policy_version) == (JobStatus.COMPLETED, "me@1")
    assert first.metrics == {"loss": 0.5, "left_out_tool_message": 1.0}
    assert first.steps == [{"loss": 0.75}, {"loss": 0.25}]
    assert JobState.model_validate_json((await post(http, job)).content) == first
    assert learner.updates == 1
    other = job.model_copy(update={"config": TrainingConfig(learning_rate=1)})
    assert (await post(http, other)).status_code == 409


async def test_cancel_stops_what_runs_and_what_waits(http, learner, job):
    """A waiting job is canceled at once and never trained; a running job at its next micro-batch."""
    await post(http, job)
    await asyncio.to_thread(learner.begun.wait, 30)
    await post(http, job.model_copy(update={"id": "next"}))
    answer = await http.post("/v1/training/jobs/next/cancel")
    assert JobState.model_validate_json(answer.content).status is JobStatus.CANCELED
    await http.post("/v1/training/jobs/job/cancel")
    assert (await final(http)).status is JobStatus.CANCELED
    assert learner.updates == 1
    again = await http.post("/v1/training/jobs/job/cancel")
    assert JobState.model_validate_json(again.content).status is JobStatus.CANCELED


async def test_a_crash_is_a_failed_job(http, learner, job):
    """Any exception in an update fails its job, and the next job is trained."""
    learner.error, _ = MemoryError("no room"), learner.go.set()
    await post(http, job)
    state = await final(http)
    assert (state.status, state.failure.type) == (JobStatus.FAILED, "internal")
    assert "no room" in state.failure.message
    learner.error = None
    await post(http, job.model_copy(update={"id": "next"}))
    assert (await final(http, "next")).status is JobStatus.COMPLETED


def trained(jobs, job, *names):
    """Train a job under each name; gives their states."""
    for name in names:
        jobs.submit(job.model_copy(update={"id": name}))
        jobs.find(name).finished.result(30)
    return [jobs.get(name).status for name in names]


def test_checkpoints_follow_save_every(worker, learner, saved, job, tmp_path):
    """With save_every 2, three jobs give one save after the second and, on closing, one after the third."""
    jobs = TrainingJobs(worker, learner, saved, output_dir=tmp_path, save_every=2)
    learner.go.set()
    trained(jobs, job, "a", "b", "c")
    assert saved.saves == ["b"]
    jobs.close()
    assert saved.saves == ["b", "c"]


def test_a_checkpoint_is_written_beside_the_next_rollouts(jobs, worker, learner, saved, job):
    """The job has ended and the model thread is free meanwhile; the next update begins when the files are there."""
    saved.gate.clear()
    learner.go.set()
    assert trained(jobs, job, "a") == [JobStatus.COMPLETED]
    worker.run_exclusive(lambda: None).result(30)
    jobs.submit(job.model_copy(update={"id": "b"}))
    assert (saved.saves, learner.updates) == ([], 1)
    saved.gate.set()
    jobs.find("b").finished.result(30)
    assert (saved.saves[0], learner.updates) == ("a", 2)


def test_a_checkpoint_that_fails_fails_the_next_job(jobs, learner, saved, job):
    """Its weights are saved when the backend ends, if there is room by then."""
    learner.go.set()
    saved.full = True
    assert trained(jobs, job, "a", "b") == [JobStatus.COMPLETED, JobStatus.FAILED]
    assert "space" in jobs.get("b").failure.message
    saved.full = False
    jobs.close()
    assert saved.saves == ["a"]


def test_the_job_of_the_checkpoint_is_known(worker, learner, saved, job, tmp_path):
    """A process that goes on from it trains that job no second time, and tells up to which job weights are on disk."""
    jobs = TrainingJobs(worker, learner, saved, output_dir=tmp_path)
    learner.go.set()
    trained(jobs, job, "a")
    known = TrainedJob(state=jobs.get("a"), digest=jobs.find("a").digest)
    saved.newest_jobs = lambda: (known, None)
    again = TrainingJobs(worker, learner, saved, output_dir=tmp_path, last=known)
    assert again.submit(job.model_copy(update={"id": "a"})) == known.state
    assert (again.saved(), learner.updates) == (SavedJobs(newest="a", fallback=None), 1)
    with pytest.raises(ValueError, match="known with another batch"):
        again.submit(job.model_copy(update={"id": "a", "config": TrainingConfig(learning_rate=1)}))
    jobs.close()
    again.close()


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        ({"token_ids": [1, 999]}, "groups.0.rollouts.0.rows.0.token_ids", "vocabulary"),
        ({"token_ids": [1] * 600}, "groups.0.rollouts.0.rows.0", "600 tokens"),
        ({"spans": []}, "groups", "no row has a span"),
        ({"spans": [{"start": 1, "stop": 3}]}, "groups.0.rollouts.0.rows.0", "a span ends at token 3; the row has 2"),
    ],
)
async def test_impossible_batches_are_refused_with_the_place(http, learner, change, place, words):
    """Invalid batches get a 422 that names group, rollout and row; nothing is queued."""
    row = {"token_ids": [1, 2], "spans": [{"start": 1, "stop": 2, "logprobs": [-1.0]}], **change}
    body = {"id": "job", "groups": [{"id": "a", "rollouts": [{"reward": 1, "rows": [row]}]}]}
    answer = await http.post("/v1/training/jobs", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == place
    assert words in answer.json()["error"]["message"]
    assert learner.updates == 0


async def test_the_best_weights_have_a_checkpoint_even_between_two(http, learner, saved, job, tmp_path):
    """They are saved where no checkpoint has them, and only once."""
    learner.go.set()
    await post(http, job)
    await final(http)
    for _ in range(2):
        answer = await http.post("/v1/training/best")
        assert answer.json() == {"path": str(tmp_path / "step_000001"), "policy_version": "me@1"}
    assert saved.saves == ["job"]
    assert (tmp_path / "best").is_symlink()
