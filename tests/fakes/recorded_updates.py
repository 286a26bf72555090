"""Small journals with updates that can be trained again."""

from datetime import UTC, datetime

import pytest

from nat.runs.journal import Journal
from nat.runs.records import JobRecord
from nat.runs.rollouts import RolloutRecord
from nat.wire.training import JobStatus, Span, TrainingRow


@pytest.fixture
def journal(tmp_path, now):
    with Journal.create(tmp_path, "run", "", created_at=now) as journal:
        yield journal


@pytest.fixture
def now():
    return datetime(2026, 3, 14, tzinfo=UTC)


def row(version="student@1"):
    return TrainingRow(token_ids=[1, 2], spans=[Span(start=1, stop=2, logprobs=[-1.0], policy_version=version)])


def rollout(example, generation, reward, **facts):
    return RolloutRecord(example_id=example, generation=generation, reward=reward, rows=[row()], **facts)


def job(now, epoch, step):
    facts = {"backend": "local", "status": JobStatus.COMPLETED, "num_groups": 1, "num_trajectories": 1}
    return JobRecord(id=f"run-{epoch}", epoch=epoch, metrics={"policy_step": step}, submitted_at=now, **facts)
