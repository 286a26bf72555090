"""The ledger knows exactly the jobs that are part of the weights."""

import os

from nat.backend.training.ledger import JobLedger
from nat.wire.ledger import LEDGER, TrainedJob
from nat.wire.training import JobState, JobStatus


def trained(name: str, step: int) -> TrainedJob:
    state = JobState(id=name, status=JobStatus.COMPLETED, metrics={"loss": 0.5})
    return TrainedJob(step=step, digest=f"digest of {name}", state=state)


def filled(path) -> list[TrainedJob]:
    ledger = JobLedger(path)
    jobs = [trained(name, step) for step, name in enumerate("abc", start=1)]
    for job in jobs:
        ledger.add(job)
    return jobs


def test_jobs_outlive_the_process(tmp_path):
    """Digest and state are read by another process, too."""
    a, b, c = filled(tmp_path / "jobs")
    ledger = JobLedger(tmp_path / "jobs", step=3)
    assert [ledger.find(name) for name in "abcd"] == [a, b, c, None]


def test_jobs_after_the_checkpoint_are_dropped(tmp_path):
    """A job that is not part of the weights is trained again and recorded once."""
    a, b, c = filled(tmp_path / "jobs")
    ledger = JobLedger(tmp_path / "jobs", step=1)
    assert [ledger.find(name) for name in "abc"] == [a, None, None]
    ledger.add(c)
    ledger.add(b)
    assert [ledger.find(name) for name in "abc"] == [a, b, c]
    assert (tmp_path / "jobs").read_text().count("\n") == 3


def test_a_truncated_line_is_dropped(tmp_path):
    """Its job was not acknowledged; the next line replaces it."""
    a, b, c = filled(tmp_path / "jobs")
    whole = (tmp_path / "jobs").read_bytes()
    (tmp_path / "jobs").write_bytes(whole[:-10])
    ledger = JobLedger(tmp_path / "jobs", step=3)
    assert [ledger.find(name) for name in "abc"] == [a, b, None]
    ledger.add(c)
    assert (tmp_path / "jobs").read_bytes() == whole


def test_jobs_of_an_older_release_are_imported(tmp_path):
    """The jobs that an old checkpoint names are recorded once each."""
    states = [JobState(id=name, status=JobStatus.COMPLETED) for name in "ab"]
    for _ in range(2):
        ledger = JobLedger(tmp_path / "jobs", step=2, jobs=states)
    assert [ledger.find(state.id) for state in states] == [TrainedJob(step=2, state=state) for state in states]
    assert (tmp_path / "jobs").read_text().count("\n") == 2


def test_a_ledger_of_a_terabyte_fills_no_memory(tmp_path):
    """A folder of others may have a sparse file; what is no line is cut off, as after a crash."""
    ledger = JobLedger(tmp_path / LEDGER)
    ledger.add(TrainedJob(step=0, state=JobState(id="one", status=JobStatus.COMPLETED)))
    size = (tmp_path / LEDGER).stat().st_size
    os.truncate(tmp_path / LEDGER, 2**40)
    assert JobLedger(tmp_path / LEDGER).find("one") is not None
    assert (tmp_path / LEDGER).stat().st_size == size
