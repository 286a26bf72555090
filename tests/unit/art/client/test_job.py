import asyncio
import math

from hypothesis import given
from hypothesis import strategies as st

from nat.art.client.job import ArtJob, mean_metrics
from nat.data_models.finetuning import TrainingJobRef, TrainingStatusEnum
from nat.errors import TrainingFailed

REF = TrainingJobRef(run_id="art_run_1", backend="openpipe-art", metadata={"job_id": "art_run_1-000001"})


def job(*lines, error=None, version="my_run@1", hold=None, seconds=60.0) -> ArtJob:
    """A job that reports the lines, waits if requested, and ends as scripted."""

    async def work(report) -> str:
        for line in lines:
            report(line)
        if hold is not None:
            await hold.wait()
        if error is not None:
            raise error
        return version

    return ArtJob(REF, work, seconds=seconds)


async def test_the_final_status_can_be_read_again():
    """Reading the status does not change it."""
    done = job({"loss": 0.5, "num_gradient_steps": 1})
    status = await done.end()
    assert status.status is TrainingStatusEnum.COMPLETED
    assert (status.progress, status.message) == (100.0, "Training completed successfully.")
    assert status.metadata == {
        "job_id": "art_run_1-000001",
        "metrics": {"loss": 0.5, "num_gradient_steps": 1.0},
        "policy_version": "my_run@1",
    }
    assert done.status == status == await done.end() == await done.cancel()


async def test_counts_have_the_names_of_every_backend():
    """The metadata has the server's own counts, and zero if there was no gradient step."""
    counts = {"data/step_num_groups_trainable": 3, "data/step_trainer_tokens": 120}
    for steps, expected in ((2, (3, 120)), (0, (0, 0))):
        metrics = ((await job({"data/step_num_gradient_steps": steps, **counts}).end()).metadata or {})["metrics"]
        assert (metrics["trained_groups"], metrics["trained_tokens"]) == expected
    assert ((await job().end()).metadata or {})["metrics"] == {"trained_groups": 0.0, "trained_tokens": 0.0}


async def test_progress_is_the_share_of_gradient_steps():
    """Progress counts gradient steps under both families of metric names."""
    for name in ("num_gradient_steps", "data/step_num_gradient_steps"):
        hold = asyncio.Event()
        running = job({name: 4}, hold=hold)
        assert running.status.progress == 0.0
        await asyncio.wait([running.task], timeout=0)
        assert (running.status.status, running.status.progress) == (TrainingStatusEnum.RUNNING, 25.0)
        assert running.status.message == "Training is in progress."
        hold.set()
        await running.end()


async def test_a_failure_has_its_reason_and_its_hint():
    """The status has the error and its remedy."""
    status = await job(error=TrainingFailed("out of memory", hint="lower max_seq_length")).end()
    assert status.status is TrainingStatusEnum.FAILED
    assert status.message == "Training failed with error: out of memory\n  → lower max_seq_length"


async def test_a_surprise_is_a_failure_too():
    """An unexpected error fails the job, not the harness."""
    status = await job(error=KeyError("role")).end()
    assert (status.status, status.message) == ("failed", "Training failed with error: KeyError: 'role'")


async def test_an_update_has_a_deadline():
    """A server that never answers fails the job at its timeout."""
    status = await job(hold=asyncio.Event(), seconds=0.01).end()
    assert status.status is TrainingStatusEnum.FAILED
    assert "not done within 0 s" in (status.message or "")


async def test_a_job_can_be_cancelled():
    """A job that is cancelled before or during its run ends as canceled."""
    for begin in (False, True):
        going = job(hold=asyncio.Event())
        if begin:
            await asyncio.wait([going.task], timeout=0)
        status = await going.cancel()
        assert (status.status, status.message) == (TrainingStatusEnum.CANCELED, "Training was canceled.")
        assert going.status == status
        assert not going.active


async def test_no_gradient_step_is_reported():
    """A job without gradient steps completes; its message says that nothing was trained."""
    for lines in ([], [{"num_gradient_steps": 0}], [{"data/step_num_gradient_steps": 0}]):
        status = await job(*lines).end()
        assert status.status is TrainingStatusEnum.COMPLETED
        assert "no gradient step" in (status.message or "")


async def test_a_metric_that_is_no_number_is_dropped():
    """A NaN or a text among the metrics is neither recorded nor averaged."""
    status = await job(
        {"loss": math.nan, "kl": math.inf, "note": "x", "entropy": 1.5}, {"loss": 0.5, "entropy": 0.5}
    ).end()
    assert (status.metadata or {})["metrics"] == {"entropy": 1.0, "loss": 0.5}


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.floats(-1e6, 1e6)), max_size=5))
def test_a_mean_is_between_the_extremes(lines):
    """Each metric is averaged over the steps that have it."""
    means = mean_metrics(lines)
    assert means.keys() == {name for line in lines for name in line}
    for name, mean in means.items():
        values = [line[name] for line in lines if name in line]
        assert min(values) - 1e-6 <= mean <= max(values) + 1e-6
