"""The table of jobs is used from several threads at once."""

from nat.backend.training.job_table import KEPT_JOBS, JobTable
from nat.wire.training import JobState, JobStatus


def ended(name):
    return JobState(id=name, status=JobStatus.COMPLETED)


class Interrupted:
    """The state of a job that has ended; another thread adds a job while it is read first."""

    id = "oldest"

    def __init__(self, table):
        self.table = table

    @property
    def status(self):
        table, self.table = self.table, None
        if table is not None:
            table.add_ended(ended("of another thread"))
        return JobStatus.COMPLETED


def test_two_threads_may_remove_the_same_job():
    """Neither fails, because a job would be accepted and never begin."""
    table = JobTable()
    for number in range(1, KEPT_JOBS):
        table.add_ended(ended(str(number)))
    table._jobs = {"oldest": table.add_ended(ended("oldest"))} | table._jobs
    table.find("oldest").state = Interrupted(table)
    table.add_ended(ended("new"))
    assert list(table._jobs)[-2:] == ["new", "of another thread"]
    assert len(table._jobs) == KEPT_JOBS
    assert table.find("oldest") is None


def test_what_an_ended_job_leaves_is_cleared_before_it_is_told():
    """Who sees that a job has failed finds its batch dropped and its count up."""
    table = JobTable()
    job, seen = table.add("job"), []

    def clear(ending):
        seen.append((ending.result().status, job.state.status, job.finished.done()))
        raise PermissionError("the batch cannot be removed")

    job.ending.add_done_callback(clear)
    table.cancel("job")
    assert seen == [(JobStatus.CANCELED, JobStatus.PENDING, False)]
    assert job.state.status is JobStatus.CANCELED
    assert job.finished.done()
    assert table.ended[JobStatus.CANCELED] == 1
