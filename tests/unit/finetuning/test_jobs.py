from fakes.run_records import NOON, rollout_record
from nat.data_models.finetuning import TrainingJobRef, TrainingJobStatus, TrainingStatusEnum, TrajectoryCollection
from nat.finetuning.epoch import PlayedEpoch
from nat.finetuning.jobs import finished, reported_metrics, submitted
from nat.runs.left_out import LeftOutCause
from nat.wire.training import JobStatus, TrainingRow

ROW = TrainingRow(token_ids=[1, 2, 3], logprobs=[None, -0.5, -0.5])
NOTHING = TrajectoryCollection(trajectories=[], run_id="r")
PLAYED = PlayedEpoch(
    epoch=2,
    run_id="r",
    collected=NOTHING,
    chosen=NOTHING,
    records=[rollout_record(rows=[ROW]), rollout_record("b", rows=[ROW], left_out=LeftOutCause.NO_REWARD_DIFFERENCE)],
)


def status(state, **metadata):
    return TrainingJobStatus(run_id="r", backend="b", status=state, message="said", metadata=metadata)


def test_a_job_has_the_backends_id_or_one_of_the_epoch():
    """So that the journal and the backend's log can be read side by side."""
    named = TrainingJobRef(run_id="r", backend="b", metadata={"job_id": "r-000003"})
    assert submitted(named, PLAYED, NOON).id == "r-000003"
    assert submitted(TrainingJobRef(run_id="r", backend="b"), PLAYED, NOON).id == "r-000002"


def test_a_completed_job_counts_the_tokens_that_carried_loss():
    """Rollouts that were left out trained nothing, and neither does a failed job."""
    job = submitted(TrainingJobRef(run_id="r", backend="b"), PLAYED, NOON)
    done = finished(job, status(TrainingStatusEnum.COMPLETED, policy_version="m@3"), PLAYED, NOON)
    failed = finished(job, status(TrainingStatusEnum.FAILED), PLAYED, NOON)
    assert (done.tokens_trained, done.policy_version, done.status) == (2, "m@3", JobStatus.COMPLETED)
    assert (failed.tokens_trained, failed.message, failed.status) == (0, "said", JobStatus.FAILED)


def test_the_backends_own_count_of_trained_tokens_holds():
    """What was submitted is not what was trained: the backend leaves out what carries no signal."""
    job = submitted(TrainingJobRef(run_id="r", backend="b"), PLAYED, NOON)
    done = finished(job, status(TrainingStatusEnum.COMPLETED, metrics={"trained_tokens": 0.0}), PLAYED, NOON)
    assert done.tokens_trained == 0
    for odd in (float("nan"), -3):
        done = finished(job, status(TrainingStatusEnum.COMPLETED, metrics={"trained_tokens": odd}), PLAYED, NOON)
        assert done.tokens_trained == 2, "what is no count counts as not told"


def test_only_numbers_are_metrics():
    """Backends of others put anything into their metadata."""
    mixed = {"loss": 1, "note": "text", "nested": {}}
    assert reported_metrics(status(TrainingStatusEnum.COMPLETED, metrics=mixed)) == {"loss": 1.0}
    assert reported_metrics(status(TrainingStatusEnum.COMPLETED, metrics="none")) == {}
