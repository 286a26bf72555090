"""Jobs over HTTP: trained once and in turn, reported, cancelled, or refused with the place of the error."""

import asyncio
import errno
import threading
from pathlib import Path

import httpx
import pytest

from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.forecast import Forecaster
from nat.backend.inference.engine import Engine
from nat.backend.inference.worker import Worker
from nat.backend.server.app import create_app
from nat.backend.server.training import training_router
from nat.backend.training.accepted_jobs import ACCEPTED, AcceptedJobs
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.job_table import KEPT_JOBS
from nat.backend.training.jobs import MAX_WAITING_JOBS, MAX_WAITING_TOKENS, TrainingJobs
from nat.backend.training.ledger import JobLedger
from nat.errors import TooManyJobs, UpdateRejected
from nat.wire.ledger import LEDGER
from nat.wire.serving import ServeOptions
from nat.wire.training import JobState, JobStatus, TrainingConfig, TrainingJob


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

    def update(self, groups, resolved, *, report, on_step):
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
    """Checkpoints that record the job ids of each save instead of writing tensors."""

    def __init__(self, folder):
        super().__init__(folder, keep_last=1)
        self.saves = []
        self.numbers_saved = []

    def save(self, loaded, learner, jobs):
        self.saves.append([job.id for job in jobs])
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
    ledger = JobLedger(tmp_path / LEDGER)
    jobs = TrainingJobs(worker, learner, saved, ledger, output_dir=tmp_path, save_every=2)
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


async def test_sent_twice_trained_once(http, learner, job):
    """The same job sent twice gives the same state; another batch with a known id is a conflict."""
    learner.go.set()
    await post(http, job)
    first = await final(http)
    assert (first.status, first.policy_version, first.metrics) == (JobStatus.COMPLETED, "me@1", {"loss": 0.5})
    assert first.steps == [{"loss": 0.75}, {"loss": 0.25}]
    assert JobState.model_validate_json((await post(http, job)).content) == first
    assert learner.updates == 1
    other = job.model_copy(update={"config": TrainingConfig(learning_rate=1)})
    assert (await post(http, other)).status_code == 409


async def test_long_poll_ends_with_its_time(http, learner, job):
    """A wait that exceeds its time returns the current state with its progress."""
    await post(http, job)
    await asyncio.to_thread(learner.begun.wait, 30)
    answer = await http.get("/v1/training/jobs/job", params={"wait": 0.05})
    assert JobState.model_validate_json(answer.content).status is JobStatus.RUNNING
    learner.go.set()
    assert (await final(http)).status is JobStatus.COMPLETED


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


async def test_only_so_many_jobs_wait(http, learner, job):
    """A job beyond the limit may be sent again later; a canceled one makes room at once, also while another trains."""
    await post(http, job)
    await asyncio.to_thread(learner.begun.wait, 30)
    waiting = [job.model_copy(update={"id": f"job-{number}"}) for number in range(MAX_WAITING_JOBS)]
    assert [(await post(http, each)).status_code for each in waiting] == [200] * MAX_WAITING_JOBS
    more = job.model_copy(update={"id": "more"})
    refused = await post(http, more)
    assert refused.status_code == 429
    assert f"at most {MAX_WAITING_JOBS} jobs" in refused.json()["error"]["message"]
    assert (await post(http, waiting[0])).status_code == 200
    await http.post("/v1/training/jobs/job-3/cancel")
    assert (await post(http, more)).status_code == 200
    learner.go.set()
    assert (await final(http, "more")).status is JobStatus.COMPLETED
    assert learner.updates == 1 + MAX_WAITING_JOBS


def test_only_so_many_tokens_wait(jobs, learner, job):
    """A job of any size is accepted if none waits; the next must fit beside it."""
    learner.begun.clear()
    row = job.groups[0].rollouts[0].rows[0]
    jobs.submit(job)
    learner.begun.wait(30)
    size = MAX_WAITING_TOKENS // (2 * len(row.token_ids)) + 1
    large = job.groups[0].rollouts[0].model_copy(update={"rows": [row] * size})
    groups = [job.groups[0].model_copy(update={"rollouts": [large]})]
    for name in ("large", "small"):
        jobs.submit(job.model_copy(update={"id": name, "groups": groups if name == "large" else job.groups}))
    with pytest.raises(TooManyJobs, match=f"of together {MAX_WAITING_TOKENS} tokens"):
        jobs.submit(job.model_copy(update={"id": "too much", "groups": groups}))


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


async def test_checkpoints_follow_save_every(http, jobs, learner, saved, job):
    """With save_every 2, three jobs give one save after the second and, on closing, one after the third."""
    learner.go.set()
    for name in ("a", "b", "c"):
        await post(http, job.model_copy(update={"id": name}))
        await final(http, name)
    assert saved.saves == [["b"]]
    await asyncio.to_thread(jobs.close)
    assert saved.saves == [["b"], ["c"]]


@pytest.mark.parametrize(
    ("times", "saves"), [((0.5, 1), ["a", "b", "c", "d"]), ((4, 15), ["a", "d"]), ((4, 50), ["a", "b", "c", "d"])]
)
def test_checkpoints_take_a_tenth_of_the_time(worker, tmp_path, job, times, saves):
    """With `auto`, a checkpoint that takes seconds is written when ten times as many have passed since the last one."""
    learner, now, (seconds, jobs_seconds) = ScriptedLearner(), 0.0, times

    class Slow(CountedCheckpoints):
        def save(self, *arguments):
            nonlocal now
            now += seconds
            return super().save(*arguments)

    slow, ledger = Slow(tmp_path), JobLedger(tmp_path / LEDGER)
    jobs = TrainingJobs(worker, learner, slow, ledger, output_dir=tmp_path, save_every="auto", clock=lambda: now)
    learner.go.set()
    for name in ("a", "b", "c", "d"):
        now += jobs_seconds
        jobs.submit(job.model_copy(update={"id": name}))
        jobs.find(name).finished.result(30)
        worker.run_exclusive(jobs._saving.finish).result(30)
    assert slow.saves == [[name] for name in saves]
    jobs.close()


class Clock:
    """Checkpoints take 4 of its seconds, jobs 100."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def long_checkpoints(worker, learner, checkpoints, clock, job):
    """Jobs of which the first has ended, and whose checkpoints are written beside rollouts from then on."""
    ledger = JobLedger(checkpoints.folder / LEDGER)
    jobs = TrainingJobs(
        worker, learner, checkpoints, ledger, output_dir=checkpoints.folder, save_every="auto", clock=clock
    )
    learner.go.set()
    jobs.submit(job.model_copy(update={"id": "first"}))
    jobs.find("first").finished.result(30)
    clock.now += 100
    return jobs


def test_a_long_checkpoint_is_written_beside_the_next_rollouts(worker, tmp_path, job):
    """The job has ended and the model thread is free meanwhile; the next update begins when the files are there."""
    gate, order, clock = threading.Event(), [], Clock()
    gate.set()

    class Noted(ScriptedLearner):
        def update(self, groups, resolved, *, report, on_step):
            order.append("update")
            return super().update(groups, resolved, report=report, on_step=on_step)

    class Gated(CountedCheckpoints):
        def save(self, *arguments):
            assert gate.wait(30)
            clock.now += 4
            order.append("saved")
            return super().save(*arguments)

    jobs = long_checkpoints(worker, Noted(), Gated(tmp_path), clock, job)
    gate.clear()
    jobs.submit(job)
    jobs.find(job.id).finished.result(30)
    worker.run_exclusive(lambda: order.append("sampled")).result(30)
    jobs.submit(job.model_copy(update={"id": "next"}))
    gate.set()
    jobs.find("next").finished.result(30)
    jobs.close()
    assert order[:6] == ["update", "saved", "update", "sampled", "saved", "update"]


def test_nobody_waits_for_the_first_checkpoint_if_it_is_long(worker, tmp_path, job):
    """After a second the job has ended, and the checkpoint is written beside what comes next."""
    gate = threading.Event()

    class Gated(CountedCheckpoints):
        def save(self, *arguments):
            assert gate.wait(30)
            return super().save(*arguments)

    checkpoints, ledger = Gated(tmp_path), JobLedger(tmp_path / LEDGER)
    learner = ScriptedLearner()
    learner.go.set()
    jobs = TrainingJobs(worker, learner, checkpoints, ledger, output_dir=tmp_path, save_every="auto")
    jobs.submit(job)
    jobs.find(job.id).finished.result(30)
    assert checkpoints.saves == []
    gate.set()
    jobs.close()
    assert checkpoints.saves == [[job.id]]


def test_a_checkpoint_that_fails_beside_rollouts_fails_the_next_job(worker, learner, tmp_path, job):
    """Its weights are saved when the backend ends, if there is room by then."""
    clock = Clock()

    class Full(CountedCheckpoints):
        full = False

        def save(self, *arguments):
            clock.now += 4
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().save(*arguments)

    full = Full(tmp_path)
    jobs = long_checkpoints(worker, learner, full, clock, job)
    full.full = True
    for name in ("second", "third"):
        jobs.submit(job.model_copy(update={"id": name}))
        jobs.find(name).finished.result(30)
    assert [jobs.get(name).status for name in ("second", "third")] == [JobStatus.COMPLETED, JobStatus.FAILED]
    assert "space" in jobs.get("third").failure.message
    full.full = False
    jobs.close()
    assert full.saves == [["first"], ["second"]]


def test_a_batch_whose_checkpoint_fails_stays(worker, learner, tmp_path, job):
    """It was trained, and no two checkpoints have its weights; a batch that was not trained is dropped."""

    class Full(CountedCheckpoints):
        def save(self, *_):
            raise OSError(errno.ENOSPC, "No space left on device")

    jobs = TrainingJobs(worker, learner, Full(tmp_path), JobLedger(tmp_path / LEDGER), output_dir=tmp_path)
    learner.go.set()
    no_update = UpdateRejected("it is NaN", kind="gradient_not_finite", hint="")
    for name, learner.error in (("trained", None), ("rejected", no_update)):
        jobs.submit(job.model_copy(update={"id": name}))
        jobs.find(name).finished.result(30)
        assert jobs.get(name).status is JobStatus.FAILED
    assert list(AcceptedJobs(tmp_path / ACCEPTED)) == ["trained"]


async def test_the_table_is_bounded_and_an_old_job_is_still_trained_once(http, jobs, learner, job):
    """An old job that is no longer in memory is answered from the file when it is sent again."""
    learner.go.set()
    await post(http, job)
    first = await final(http)
    for number in range(KEPT_JOBS + 5):
        await post(http, job.model_copy(update={"id": f"job-{number}"}))
        await final(http, f"job-{number}")
    assert len(jobs._jobs) <= KEPT_JOBS + 1
    assert "job" not in jobs._jobs
    updates = learner.updates
    assert JobState.model_validate_json((await post(http, job)).content) == first
    assert learner.updates == updates
    other = job.model_copy(update={"config": TrainingConfig(learning_rate=1)})
    assert (await post(http, other)).status_code == 409


async def test_the_size_of_a_checkpoints_record_is_constant(http, learner, saved, job):
    """The record in a checkpoint does not grow with the number of jobs."""
    learner.go.set()
    for number in range(20):
        await post(http, job.model_copy(update={"id": f"job-{number}"}))
        await final(http, f"job-{number}")
    assert {len(ids) for ids in saved.saves} == {1}


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e300", f"-1{'0' * 400}"])
async def test_a_log_probability_that_is_no_number_is_refused(http, learner, value):
    """It is not taken for a token that nobody sampled, which would switch off the comparison with the sampler."""
    span = f'{{"start": 1, "stop": 2, "logprobs": [{value}]}}'
    body = '{"id": "job", "groups": [{"id": "a", "rollouts": [{"reward": 1, "rows": [{"token_ids": [1, 2], "spans": '
    answer = await http.post("/v1/training/jobs", content=f"{body}[{span}]}}]}}]}}]}}")
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "groups.0.rollouts.0.rows.0.spans.0.logprobs.0"
    assert learner.updates == 0


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


async def test_unknown_jobs_and_invalid_waits_are_errors(http):
    """Unknown ids get a 404, invalid waits a 422."""
    assert (await http.get("/v1/training/jobs/none")).status_code == 404
    assert (await http.post("/v1/training/jobs/none/cancel")).status_code == 404
    assert (await http.get("/v1/training/jobs/none", params={"wait": "soon"})).status_code == 422
    assert (await http.get("/v1/training/jobs/none", params={"wait": "nan"})).status_code == 422


@pytest.mark.parametrize("name", ["checkpoints", "backend.log", "exports"])
async def test_an_export_never_replaces_files_of_the_backend(http, tmp_path, name):
    """An export with the name of a backend file is written to the folder of exports and replaces nothing."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "precious").touch()
    answer = await http.post("/v1/training/export", json={"name": name})
    assert answer.status_code == 200
    assert answer.json()["path"] == str(tmp_path / "exports" / name)
    assert (tmp_path / name / "precious").exists()


async def test_an_export_that_would_replace_something_is_a_conflict(http, tmp_path):
    """An export to an existing target gets a 409 with the place and the remedy."""
    (tmp_path / "exports" / "mine").mkdir(parents=True)
    answer = await http.post("/v1/training/export", json={"name": "mine"})
    assert answer.status_code == 409
    assert "exports/mine is not ours to replace; choose another name" in answer.json()["error"]["message"]


async def test_the_best_weights_have_a_checkpoint_even_between_two(http, learner, saved, job, tmp_path):
    """With save_every 2, the best weights after the first job are saved then, and only once."""
    learner.go.set()
    await post(http, job)
    await final(http)
    for _ in range(2):
        answer = await http.post("/v1/training/best")
        assert answer.json() == {"path": str(tmp_path / "step_000001"), "policy_version": "me@1"}
    assert saved.saves == [["job"]]
    assert (tmp_path / "best").is_symlink()
