import pytest

from fakes.run_records import NOON
from nat.data_models.finetuning import EarlyStoppingConfig, FinetuneConfig, TrainerConfig
from nat.errors import EvaluationError
from nat.finetuning.run_context import open_run
from nat.finetuning.trainer import EpochTrainer
from nat.finetuning.validation import plateaued, validate


class OwnValidation(EpochTrainer):
    """A trainer whose validation returns only the guide's keys."""

    def __init__(self, **metrics):
        super().__init__(TrainerConfig())
        self.metrics = metrics
        self.asked = 0

    async def run_validation_evaluation(self, epoch, run_id):
        self.asked += 1
        return self.metrics


@pytest.fixture
def run(tmp_path):
    with open_run(FinetuneConfig(output_dir=tmp_path), "", now=lambda: NOON) as opened:
        yield opened


async def test_a_custom_validation_is_recorded_by_its_mean(run):
    """History and plot need no single scores."""
    record = await validate(OwnValidation(avg_reward=0.75, num_examples=8), 2, run)
    assert (record.epoch, record.avg_reward) == (2, 0.75)
    assert run.journal.validations() == [record]


async def test_an_epoch_is_validated_once(run):
    """A second validation of unchanged weights would play the same games."""
    trainer = OwnValidation(avg_reward=0.75)
    assert await validate(trainer, 2, run) == await validate(trainer, 2, run)
    assert trainer.asked == 1


async def test_an_error_is_never_a_score(run):
    """A validation that returns zeros and an `error` is an error, not a score."""
    with pytest.raises(EvaluationError, match="validation after epoch 2 failed: judge is down"):
        await validate(OwnValidation(avg_reward=0.0, error="judge is down"), 2, run)
    assert run.journal.validations() == []


async def test_an_invalid_mean_is_an_error(run):
    """A plug-in's validation may return anything."""
    with pytest.raises(EvaluationError, match="avg_reward is a whole number of more than 308 digits"):
        await validate(OwnValidation(avg_reward=10**400), 1, run)


def test_early_stopping_needs_patience_scores_without_a_rise():
    """The best of the last `patience` scores must exceed the best before them."""
    config = EarlyStoppingConfig(patience=2)
    assert not plateaued([0.5, 0.4], config)
    assert plateaued([0.5, 0.4, 0.5], config)
    assert not plateaued([0.5, 0.4, 0.6], config)


def test_a_rise_within_min_delta_does_not_count():
    """Small rises do not prevent early stopping."""
    assert plateaued([0.5, 0.55], EarlyStoppingConfig(patience=1, min_delta=0.1))
    assert not plateaued([0.5, 0.65], EarlyStoppingConfig(patience=1, min_delta=0.1))
