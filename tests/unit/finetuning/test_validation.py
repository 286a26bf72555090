import pytest

from fakes.run_records import NOON, epoch_record, epoch_records, validation_record
from nat.data_models.finetuning import EarlyStoppingConfig, FinetuneConfig, GuardsConfig, TrainerConfig
from nat.data_models.rollout_failure import RAISED, FailureCount
from nat.errors import EvaluationError
from nat.finetuning.diagnosis.conditions import truncation
from nat.finetuning.run_log import open_run
from nat.finetuning.trainer import EpochTrainer
from nat.finetuning.validation import held_out_warning, plateaued, validate
from nat.runs.records import BestEpoch, held_out_means

CONFIG = GuardsConfig()


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


async def test_an_epoch_is_validated_once(run):
    """A second validation of unchanged weights would play the same games."""
    trainer = OwnValidation(avg_reward=0.75)
    assert await validate(trainer, 2, run) == await validate(trainer, 2, run)
    assert trainer.asked == 1


async def test_a_validation_of_a_killed_process_keeps_the_best_weights(run):
    """Its record may be there without that of the best weights, which are still the current ones."""
    trainer = OwnValidation(avg_reward=0.75)
    run.append(validation_record(1))
    run.journal.record(epoch_record(0))
    await validate(trainer, 1, run)
    assert (run.journal.find(BestEpoch).epoch, run.journal.find(BestEpoch).score) == (1, 0.5)
    run.append(validation_record(0, {"x": 1.0}))
    await validate(trainer, 0, run)
    assert run.journal.find(BestEpoch).epoch == 1
    assert trainer.asked == 0


async def test_an_error_is_never_a_score(run):
    """A validation that returns zeros and an `error` is an error, not a score."""
    with pytest.raises(EvaluationError, match="validation after epoch 2 failed: judge is down"):
        await validate(OwnValidation(avg_reward=0.0, error="judge is down"), 2, run)
    assert run.journal.validations() == []


async def test_each_validation_is_followed_by_the_likeliest_cause(run, caplog):
    """In full when it is new, then its number alone; the summary says it at the end."""
    trainer = OwnValidation(avg_reward=0.5)
    trainer.run_config = FinetuneConfig(num_epochs=4)
    cut_off = {"rollout/truncated": 0.5, "reward/truncated_lowest": 1.0}
    for epoch in (1, 2, 3, 4):
        run.journal.record(epoch_record(epoch - 1, metrics=cut_off))
        await validate(trainer, epoch, run)
    cause = "Answers are cut off: 50% of the rollouts hit a token limit, and 100% of these have the lowest score"
    assert [text.removesuffix(truncation.remedy) for text in caplog.messages] == [
        f"Diagnosis after epoch 1: {cause} (healthy: {truncation.range_in(CONFIG)}). ",
        f"Diagnosis after epoch 2: {cause}, as before.",
        f"Diagnosis after epoch 3: {cause}, as before.",
    ]


@pytest.mark.parametrize(
    ("scores", "settings", "ends"),
    [
        ([0.5, 0.4], {"patience": 2}, False),
        ([0.5, 0.4, 0.5], {"patience": 2}, True),
        ([0.5, 0.4, 0.6], {"patience": 2}, False),
        ([0.5, 0.55], {"patience": 1, "min_delta": 0.1}, True),
        ([0.5, 0.65], {"patience": 1, "min_delta": 0.1}, False),
    ],
)
def test_early_stopping_needs_patience_scores_without_a_rise(scores, settings, ends):
    """The best of the last `patience` scores must exceed the best before them, by more than `min_delta`."""
    assert plateaued(scores, EarlyStoppingConfig(**settings)) is ends


def validations(*shares):
    """Validations of 100 games after every tenth epoch; always the first games are won."""
    return [
        validation_record(10 * n, {str(game): float(game < 100 * share) for game in range(100)})
        for n, share in enumerate(shares)
    ]


def test_overfitting_is_a_warning():
    """The training reward rises while the held-out score falls below its start."""
    text = held_out_warning(
        validations(0.5, 0.6, 0.3), lambda: epoch_records([0.5 + n / 50 for n in range(20)]), CONFIG
    )
    assert text.startswith("The held-out score fell from 0.600 after epoch 10 to 0.300 after epoch 20. ")
    assert "The mean reward in training did not (0.880 in epoch 20)" in text
    of_a_file = epoch_records([1.0] * 20, played=False)
    assert "mean reward" not in held_out_warning(validations(0.5, 0.6, 0.3), lambda: of_a_file, CONFIG)


def test_failing_since_training_is_a_fall_and_no_best_score():
    """Half of the games fail, and the others are won as before: the mean of those that are left would not fall."""
    failure = FailureCount(cause=RAISED, count=50, error="ValueError: no JSON")
    before, after = (validation_record(n, {str(game): 1.0 for game in range(100)}) for n in (0, 10))
    failed = {str(game): None if game % 2 else 1.0 for game in range(100)}
    after = after.model_copy(update={"scores": failed, "failures": [failure]})
    assert held_out_means([before, after]) == {0: 1.0, 10: 0.5}
    text = held_out_warning([before, after], list, CONFIG)
    assert "fell from 1.000 before training to 0.500 after epoch 10" in text
    assert "50 x the workflow raised an error: ValueError: no JSON" in text
    always = before.model_copy(update={"scores": failed})
    assert held_out_warning([always, after], list, CONFIG) is None


def test_a_broken_model_is_a_warning_with_its_cause():
    """If both rewards fall, the warning names the update that broke the model."""
    epochs = epoch_records([0.5] * 12 + [0.0] * 8, metrics={"train/grad_norm": 1.0})
    epochs[11] = epochs[11].model_copy(update={"metrics": {"train/approx_kl": 9.0}})
    text = held_out_warning(validations(0.32, 0.79, 0.1), lambda: epochs, CONFIG)
    assert held_out_warning(validations(0.8, 0.3), list, CONFIG).startswith(
        "The held-out score fell from 0.800 before training to 0.300 after epoch 10. "
    )
    assert "fell from 0.790 after epoch 10 to 0.100 after epoch 20. The update of epoch 12 moved the policy" in text
