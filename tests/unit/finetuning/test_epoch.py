from dataclasses import replace

from fakes.run_records import NOON, rollout_record
from fakes.training_rows import row_of
from nat.data_models.finetuning import (
    CurriculumLearningConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrainingStatusEnum,
    Trajectory,
    TrajectoryCollection,
)
from nat.finetuning.epoch import (
    PlayedEpoch,
    epoch_record,
    finished_job,
    marked,
    submitted_job,
    with_signal,
)
from nat.runs.rollouts import LeftOutCause
from nat.wire.training import JobStatus


def collection(**groups):
    """One group per keyword, with the rewards of its generations."""
    made = [
        [Trajectory(episode=[], reward=r, metadata={"id": name, "generation": n}) for n, r in enumerate(rewards)]
        for name, rewards in groups.items()
    ]
    return TrajectoryCollection(trajectories=made, run_id="r")


def records(**groups):
    return [rollout_record(name, n, reward=r) for name, rewards in groups.items() for n, r in enumerate(rewards)]


GROUPS = {"flat": (1.0, 1.0), "mixed": (0.0, 1.0)}


def test_records_of_left_out_groups_have_the_reason():
    """The reason is too little difference, or the curriculum; records with a cause keep it."""
    config = CurriculumLearningConfig(enabled=True, min_reward_diff=0.1)
    given = {"close": (0.5, 0.55), "easy": (0.5, 1.0), "hard": (0.0, 0.5)}
    collected = collection(**given)
    chosen = TrajectoryCollection(trajectories=[collected.trajectories[1]], run_id="r")
    failed = rollout_record("easy", 2, reward=None, left_out=LeftOutCause.FAILED)
    found = marked([*records(**given), failed], collected, chosen, config)
    assert [record.left_out for record in found] == [
        *[LeftOutCause.NO_REWARD_DIFFERENCE] * 2,
        *[None] * 2,
        *[LeftOutCause.OUTSIDE_CURRICULUM] * 2,
        LeftOutCause.FAILED,
    ]
    chosen = TrajectoryCollection(trajectories=[collected.trajectories[1][:1]], run_id="r")  # of a group, some
    assert [record.left_out for record in marked(records(**given), collected, chosen, config)][2:4] == [
        None,
        LeftOutCause.OUTSIDE_CURRICULUM,
    ]


def played(collected, chosen, found):
    return PlayedEpoch(epoch=4, run_id="r", collected=collected, chosen=chosen, records=found)


def finished(of):
    seconds = {"epoch": 3.0, "train": 1.0}
    return epoch_record(of, timestamp=NOON, curriculum=None, seconds=seconds, job={"loss": 0.5})


def test_an_epochs_record_counts_all_and_the_trained():
    """`avg_reward` averages all rollouts, `filtered_*` the trained ones."""
    collected = collection(**GROUPS)
    chosen = with_signal(collected, across_groups=False)
    found = marked(records(**GROUPS), collected, chosen, CurriculumLearningConfig())
    record = finished(played(collected, chosen, found))
    assert (record.avg_reward, record.num_groups, record.num_trajectories) == (0.75, 2, 4)
    assert (record.filtered_avg_reward, record.filtered_groups, record.filtered_trajectories) == (0.5, 1, 2)
    assert (record.groups_without_difference, record.left_out) == (1, {"its group has no difference in reward": 2})
    assert (record.metrics["train/loss"], record.metrics["time/train"], record.metrics["time/epoch"]) == (0.5, 1.0, 3.0)
    of_a_file = finished(replace(played(collected, chosen, found), played=False)).metrics
    assert "reward/mean" in record.metrics
    assert "reward/mean" not in of_a_file  # trackers would show what says nothing of the model


ROW = row_of([1, 2, 3], [None, -0.5, -0.5])
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


def test_a_completed_job_counts_the_tokens_that_carried_loss():
    """Left-out rollouts and failed jobs have no trained tokens."""
    job = submitted_job(TrainingJobRef(run_id="r", backend="b"), PLAYED, NOON)
    done = finished_job(job, status(TrainingStatusEnum.COMPLETED, policy_version="m@3"), PLAYED, NOON)
    failed = finished_job(job, status(TrainingStatusEnum.FAILED), PLAYED, NOON)
    assert (done.tokens_trained, done.policy_version, done.status) == (2, "m@3", JobStatus.COMPLETED)
    assert (failed.tokens_trained, failed.message, failed.status) == (0, "said", JobStatus.FAILED)
