"""What is called equal, rounding or different, and in which order."""

import struct
from datetime import UTC, datetime

import pytest

from nat.runs.records import EpochRecord, JobRecord
from nat.runs.replayed import Likeness, Trained, Weights, compare, first_beyond, moved
from nat.runs.rollouts import AnswerRecord, Beginning, ConversationRecord, RolloutRecord
from nat.wire.training import JobFailure, JobState, JobStatus, Span, TokenMismatch, TrainingJob, TrainingRow

NOW = datetime(2026, 3, 14, tzinfo=UTC)
STEP = {
    "entropy": 1.0,
    "advantage_mean": 0.0,
    "advantage_size": 0.5,
    "loss": 0.0,
    "grad_norm": 2.0,
    "update_ratio": 1e-3,
}
ROW = TrainingRow(token_ids=[1, 2, 3, 4], spans=[Span(start=1, stop=3, logprobs=[-1.0, -2.0])])


@pytest.fixture
def job():
    facts = {"backend": "local", "num_groups": 1, "num_trajectories": 2, "submitted_at": NOW}
    return JobRecord(
        id="job", epoch=0, status=JobStatus.COMPLETED, metrics={"trained_rollouts": 2}, steps=[STEP], **facts
    )


@pytest.fixture
def epoch():
    rewards = {"avg_reward": 0.5, "min_reward": 0.0, "max_reward": 1.0}
    trained = {f"filtered_{name}": value for name, value in rewards.items()}
    counts = {"num_trajectories": 2, "num_groups": 1, "filtered_trajectories": 2, "filtered_groups": 1}
    return EpochRecord(epoch=0, timestamp=NOW, run_id="run", **rewards, **trained, **counts)


def sent(*rewards):
    rollouts = [{"reward": reward, "rows": [ROW.model_dump()]} for reward in rewards]
    return TrainingJob.model_validate({"id": "job", "groups": [{"id": "0", "rollouts": rollouts}]})


def replayed(**numbers):
    metrics = {"trained_rollouts": 2}
    return JobState(id="job", status=JobStatus.COMPLETED, metrics=metrics, steps=[STEP | numbers])


def compared(job, epoch, state, rewards=(0.0, 1.0), *, weights=None, precision="float32", mismatch=()):
    now = Trained(sent(*rewards), state, TokenMismatch(differences=None), weights, precision, None)
    return list(compare(job, epoch, now, mismatch))


def first(*given, likeness=Likeness.ROUNDING):
    found = first_beyond(compared(*given), likeness)
    return None if found is None else (found.stage, found.name)


def test_equal_numbers(job, epoch):
    assert first(job, epoch, replayed(), likeness=Likeness.EQUAL) is None


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"advantage_mean": 0.1, "loss": 9.0}, ("advantage", "advantage_mean, step 1")),
        ({"loss": 1e-3, "grad_norm": 3.0}, ("loss", "loss, step 1")),
        ({"grad_norm": 2.01, "update_ratio": 1.0}, ("gradient", "grad_norm, step 1")),
        ({"update_ratio": 1.1e-3}, ("step", "update_ratio, step 1")),
    ],
)
def test_the_first_stage_that_differs(job, epoch, numbers, expected):
    """Later stages differ because the first one does."""
    assert first(job, epoch, replayed(**numbers)) == expected


def test_rewards_come_first(job, epoch):
    assert first(job, epoch, replayed(loss=9.0), (0.0, 2.0)) == ("reward", "highest reward")


def test_rounding_is_relative_to_the_terms(job, epoch):
    """A loss near zero is a sum of advantages, and rounds as they do."""
    state = replayed(loss=1e-5, grad_norm=2.00004)
    assert first(job, epoch, state) is None
    assert first(job, epoch, state, likeness=Likeness.EQUAL) == ("loss", "loss, step 1")


def test_an_update_that_is_refused_now(job, epoch):
    """The check that failed names the stage."""
    failure = JobFailure(type="gradient_zero", message="the gradient is zero", hint="none")
    state = replayed().model_copy(update={"failure": failure, "steps": []})
    assert first(job, epoch, state) == ("gradient", "update")


def test_tokens_are_compared_one_by_one(job, epoch):
    """The one that differs most counts; a token without loss is equal to itself."""
    one, other = struct.pack("<3e", 0.0, float("nan"), 0.0), struct.pack("<3e", 0.0, float("nan"), 0.25)
    assert first_beyond(compared(job, epoch, replayed(), mismatch=[(one, one)]), Likeness.EQUAL) is None
    found = first_beyond(compared(job, epoch, replayed(loss=9.0), mismatch=[(one, other)]), Likeness.EQUAL)
    assert (found.stage, found.likeness, found.replayed) == ("log probabilities", Likeness.DIFFERS, 0.25)
    assert found.what == "learner less sampler at token 2 of 3"
    near = [(one, struct.pack("<3e", 0.0, 0.0, 1e-3))]
    assert (
        first_beyond(compared(job, epoch, replayed(), precision="bfloat16", mismatch=near), Likeness.ROUNDING) is None
    )


@pytest.mark.parametrize(("relative", "likeness"), [(0, "equal"), (0.005, "equal up to rounding"), (0.1, "differs")])
def test_weights_may_differ_more(job, epoch, relative, likeness):
    """AdamW divides by the gradient's own size."""
    weights = Weights(tensors=2, differing=1, relative=relative)
    assert compared(job, epoch, replayed(), weights=weights)[-1].likeness == likeness


def test_tokens_that_moved():
    """Only those with loss; each with the answer that it belongs to."""
    answer = AnswerRecord(message=1, row=0, span=0)
    chat = ConversationRecord(began=Beginning.FIRST, messages=2, answers=[answer])
    record = RolloutRecord(example_id="7", generation=3, rows=[ROW, ROW], conversations=[chat])
    before, after = (
        struct.pack("<4f", 0.5, 0.25, *[float("nan")] * 2),
        struct.pack("<4f", 0.5, -0.25, *[float("nan")] * 2),
    )
    found = moved([(record, 0), (record, 1)], before, after)
    assert (found.tokens, found.moved, found.sizes) == (2, 1, (0.75, 0.75))
    assert found.cosine == pytest.approx(0.6)
    (token,) = found.most
    assert (token.token, token.token_id, token.message, token.before, token.after) == (2, 3, 1, 0.25, -0.25)
