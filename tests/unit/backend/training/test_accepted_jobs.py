"""An acknowledged job is trained, whenever the backend is killed."""

import os
import shutil

import pytest

from fakes.training_batches import random_groups
from nat.backend.inference.engine import Engine
from nat.backend.inference.worker import Worker
from nat.backend.training.accepted_jobs import ACCEPTED, AcceptedJobs, digest_of
from nat.backend.training.jobs import TrainingJobs
from nat.backend.training.ledger import JobLedger
from nat.errors import TrainingFailed
from nat.wire.ledger import LEDGER
from nat.wire.training import JobStatus, TrainingConfig, TrainingJob
from unit.backend.training.test_jobs import CountedCheckpoints, ScriptedLearner


def job(loaded, name="job"):
    return TrainingJob(
        id=name, groups=random_groups(loaded, groups=2, rollouts=2), config=TrainingConfig(learning_rate=1e-3)
    )


@pytest.fixture
def begun(loaded, tmp_path):
    """Open the jobs of a new process over the same folder; each process is closed at the end."""
    opened = []

    def begin(step=0, save_every=1, folder=tmp_path):
        learner = ScriptedLearner()
        learner.step = step
        worker, ledger = Worker(Engine(loaded, policy_version=f"me@{step}")), JobLedger(folder / LEDGER, step=step)
        checkpoints = CountedCheckpoints(folder)
        checkpoints.numbers_saved = [step] * bool(step)
        jobs = TrainingJobs(worker, learner, checkpoints, ledger, output_dir=folder, save_every=save_every)
        opened.append((jobs, learner))
        return jobs, learner

    yield begin
    for jobs, learner in opened:
        learner.go.set()
        jobs.close()


def kept(tmp_path):
    return list(AcceptedJobs(tmp_path / ACCEPTED))


def test_a_batch_is_read_as_it_was_sent(loaded, tmp_path):
    """Its digest is the same, so that its client finds it under its id; the order is that of acceptance.

    What was not set stays so, because the algorithm has its own defaults.
    """
    accepted, sent = AcceptedJobs(tmp_path), [job(loaded, name) for name in ("b-1", "a")]
    for each in sent:
        accepted.add(each)
    again = AcceptedJobs(tmp_path)
    assert list(again) == ["b-1", "a"]
    assert [again.read(each.id) for each in sent] == sent
    assert [again.read(each.id).config.model_fields_set for each in sent] == [{"learning_rate"}] * 2
    assert [digest_of(again.read(each.id)) for each in sent] == list(map(digest_of, sent))


def test_a_default_that_is_written_out_is_another_setting(loaded):
    """It replaces the algorithm's own, so a job with it is not the one without it."""
    plain = job(loaded)
    written = plain.model_copy(update={"config": TrainingConfig(learning_rate=1e-3, beta=TrainingConfig().beta)})
    assert digest_of(written) != digest_of(plain)


def test_a_damaged_batch_is_sent_again(loaded, tmp_path, begun):
    """What cannot be read is forgotten; its client, which finds no job of this id, sends it again."""
    AcceptedJobs(tmp_path / ACCEPTED).add(job(loaded))
    [path] = (tmp_path / ACCEPTED).iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    jobs, _ = begun()
    jobs.take_up()
    assert (jobs.get("job"), kept(tmp_path)) == (None, [])


def test_jobs_that_wait_are_trained_after_a_kill(loaded, tmp_path, begun):
    """The next process trains them in their order, under their ids; a client that asks again does not add one."""
    for name in ("first", "second"):
        AcceptedJobs(tmp_path / ACCEPTED).add(job(loaded, name))
    jobs, learner = begun()
    jobs.take_up()
    assert jobs.submit(job(loaded, "second")).status is JobStatus.PENDING
    learner.go.set()
    for name, version in (("first", "me@1"), ("second", "me@2")):
        jobs.find(name).finished.result(30)
        assert jobs.get(name).policy_version == version
    assert (learner.updates, kept(tmp_path)) == (2, [])


def test_what_no_checkpoint_has_is_trained_again(loaded, tmp_path, begun):
    """With seldom checkpoints, the weights of jobs that ended are lost with the process; their batches are not."""
    jobs, learner = begun(save_every=9)
    learner.go.set()
    jobs.submit(job(loaded))
    jobs.find("job").finished.result(30)
    assert kept(tmp_path) == ["job"]
    as_killed = shutil.copytree(tmp_path, tmp_path / "copy")
    second, _ = begun(folder=as_killed)  # from step 0, as there is no checkpoint
    second.take_up()
    assert second.get("job").status in {JobStatus.PENDING, JobStatus.RUNNING}


def test_a_job_of_the_checkpoint_is_not_trained_again(loaded, tmp_path, begun):
    """Its file may be left if the process was killed right after the checkpoint."""
    jobs, learner = begun()
    learner.go.set()
    jobs.submit(job(loaded))
    jobs.find("job").finished.result(30)
    AcceptedJobs(tmp_path / ACCEPTED).add(job(loaded))
    second, again = begun(step=1)
    second.take_up()
    assert (second.get("job").status, again.updates, kept(tmp_path)) == (JobStatus.COMPLETED, 0, [])


@pytest.mark.parametrize("how", ["failed", "canceled"])
def test_a_job_without_an_update_is_not_taken_up(loaded, tmp_path, begun, how):
    """Its client knows that it trained nothing."""
    jobs, learner = begun()
    learner.error = TrainingFailed("no gradient") if how == "failed" else None
    jobs.submit(job(loaded))
    if how == "canceled":
        jobs.cancel("job")
    else:
        learner.go.set()
    jobs.find("job").finished.result(30)
    jobs._engine.run_exclusive(lambda: None).result(30)  # the thread of the job has done all that follows its end
    assert (jobs.get("job").status, kept(tmp_path)) == (JobStatus(how), [])


def test_a_backend_that_is_stopped_keeps_its_jobs(loaded, tmp_path, begun):
    """A stop cancels the update under way, and the next start trains it."""
    jobs, learner = begun()
    jobs.submit(job(loaded))
    assert learner.begun.wait(30)
    jobs.close()
    assert (jobs.get("job").status, kept(tmp_path)) == (JobStatus.CANCELED, ["job"])


@pytest.mark.parametrize("how", ["link", "pipe", "terabyte", "name", "algorithm", "vocabulary"])
def test_what_no_backend_has_accepted_is_forgotten(loaded, tmp_path, begun, how):
    """The folder may be of others: it neither stops the backend nor fills its memory."""
    sent = job(loaded)
    if how == "algorithm":
        sent = sent.model_copy(update={"config": TrainingConfig(algorithm="none of ours")})
    if how == "vocabulary":
        sent.groups[0].rollouts[0].rows[0].token_ids[0] = loaded.vocab_size
    AcceptedJobs(tmp_path / ACCEPTED).add(sent)
    [path] = (tmp_path / ACCEPTED).iterdir()
    match how:
        case "link":
            path.symlink_to(path.rename(tmp_path / "elsewhere"))
        case "pipe":
            path.unlink()
            os.mkfifo(path)
        case "terabyte":
            os.truncate(path, 2**40)
        case "name":
            path.rename(path.with_name("00000001-other.json"))
    jobs, _ = begun()
    jobs.take_up()
    assert (jobs.get("job"), jobs.get("other"), kept(tmp_path)) == (None, None, [])


def test_files_with_other_names_are_left_alone(loaded, tmp_path):
    """They are none of ours, and count for nothing."""
    for name in ("x-a.json", f"{'9' * 200}-a.json", "00000007-.json", "\u0663-a.json"):
        (tmp_path / name).touch()
    accepted = AcceptedJobs(tmp_path)
    accepted.add(job(loaded))
    assert (list(accepted), (tmp_path / "00000001-job.json").is_file()) == (["job"], True)
