import pytest

from fakes.run_records import epoch_records, rollout_record
from nat.data_models.finetuning import GuardsConfig, TrainingJobStatus, TrainingStatusEnum
from nat.errors import NoLearningSignal, RewardCollapse, TooManyFailures, TrainingFailed
from nat.finetuning import guards
from nat.finetuning.alarms import alarms
from nat.finetuning.diagnosis.conditions_of_large_updates import CLIPPED, GRADIENT, KL, RATE, WEIGHTS
from nat.finetuning.diagnosis.conditions_of_rollouts import TRUNCATED
from nat.finetuning.diagnosis.conditions_of_updates import ENTROPY
from nat.finetuning.diagnosis.fall import broken_by_update, explanation_of
from nat.runs.rollouts import LeftOutCause, tally

CONFIG = GuardsConfig()
TOO_FAR = "rate_too_high"
QUIET = {
    KL: 0.03,
    GRADIENT: 1.4,
    WEIGHTS: 0.0015,
    ENTROPY: 0.7,
    RATE: 3e-4,
    TRUNCATED: 0.0,
    **dict.fromkeys(CLIPPED, 0.02),
}
BURST = {KL: 9.1, GRADIENT: 2.88, WEIGHTS: 0.105, ENTROPY: 0.283, RATE: 0.0099, **dict.fromkeys(CLIPPED, 0.1)}
"""The metrics of tic-tac-toe at a learning rate of 0.02, whose first update made every reward 0."""


def run(rewards, metrics, **changes):
    """One epoch per reward, each with its metrics."""
    epochs = epoch_records(rewards, **changes)
    return [e.model_copy(update={"metrics": QUIET | own}) for e, own in zip(epochs, metrics, strict=True)]


def burst(then=3, healthy=2):
    """Healthy epochs, one update that breaks the model, and epochs without a reward."""
    rewards = [0.4] * healthy + [0.45] + [0.0] * then
    metrics = [{}] * healthy + [BURST] + [{ENTROPY: 0.0}] * then
    return run(rewards, metrics)


def flat(epochs, count):
    """The last epochs have no difference in reward."""
    dead = {"groups_without_difference": 24, "filtered_groups": 0, "max_reward": 0.0, "examples": {"a": 0.0}}
    return [*epochs[:-count], *(e.model_copy(update=dead) for e in epochs[-count:])]


def test_an_update_that_is_too_large_is_named_with_its_numbers():
    """The remedy has the learning rate that was used and one to try."""
    found = explanation_of(burst(), CONFIG)
    assert found.cause == TOO_FAR
    assert found.seen == (
        "the update of epoch 3 moved the policy too far: KL divergence 9.1 per token (at most 0.03 before), "
        "gradient norm 2.88 (at most 1.4 before), weights changed by 10.50% a step, 20% of the tokens clipped, "
        "entropy 0.283"
    )
    assert "Lower the learning rate: it was 0.0099 on average in that update, so try 0.0002." in found.remedy


@pytest.mark.parametrize(
    "metrics",
    [{KL: 0.5}, {WEIGHTS: 0.05, KL: 0.1}, {GRADIENT: 60.0}],
    ids=["KL", "weights", "gradient"],
)
def test_each_measure_of_an_update_is_enough(metrics):
    """A backend need not report all measures."""
    assert explanation_of(run([0.4, 0.45, 0.0], [{}, metrics, {}]), CONFIG).cause == TOO_FAR


def test_large_steps_that_hardly_moved_the_policy_are_not_blamed():
    """LoRA changes its small matrices by percents; the KL divergence tells that the policy hardly moved."""
    assert explanation_of(run([0.4, 0.45, 0.1], [{}, {WEIGHTS: 0.05}, {}]), CONFIG).cause == "no_large_update"


def test_updates_before_the_best_epoch_are_not_blamed():
    """Updates before the highest reward cannot be the reason for its fall."""
    assert explanation_of(run([0.4, 0.6, 0.1], [BURST, {}, {}]), CONFIG).cause == "no_large_update"


@pytest.mark.parametrize(
    ("metrics", "cause", "text"),
    [
        ({CLIPPED[0]: 0.7}, "many_clipped", "38% of the trained tokens were clipped"),
        ({TRUNCATED: 0.9}, "truncation", "90% of the rollouts hit a token limit, and 0% did at first"),
        ({ENTROPY: 0.1}, "entropy_collapse", "the entropy per token fell from 0.700 to 0.100"),
        (
            {},
            "no_large_update",
            "no update since was large (KL divergence per token at most 0.03, gradient norm at most 1.4)",
        ),
    ],
)
def test_other_causes_are_named(metrics, cause, text):
    """The learning rate is not blamed if other numbers explain the fall, or if no number is unusual."""
    found = explanation_of(run([0.4, 0.45, 0.1], [{}, {}, metrics]), CONFIG)
    assert found.cause == cause
    assert text in found.seen
    assert "it was" not in found.remedy


def test_without_metrics_there_is_no_cause():
    """Neither a backend without metrics nor a run without epochs gives a cause."""
    assert explanation_of(epoch_records([0.5, 0.1]), CONFIG) is None
    assert explanation_of([], CONFIG) is None


def test_equal_rewards_after_a_burst_are_not_blamed_on_the_examples():
    """After a learning rate of 0.02 made every reward 0, the error must not say that the examples are too hard."""
    with pytest.raises(NoLearningSignal) as caught:
        guards.check_signal(flat(burst(), 3), CONFIG)
    text = str(caught.value)
    assert "The mean reward was 0.450 in epoch 3 and is 0.000 now. The update of epoch 3 moved the policy" in text
    assert "Lower the learning rate" in text
    assert "too hard" not in text


def test_equal_rewards_from_the_start_are_still_blamed_on_the_examples():
    """If nothing fell, no update is the cause, even a large one."""
    with pytest.raises(NoLearningSignal, match="If the examples are too hard"):
        guards.check_signal(flat(run([0.0] * 10, [BURST, *[{}] * 9]), 10), CONFIG)


def test_a_collapse_is_explained_by_what_changed():
    """If the updates were small, the error suspects the rewards and not the learning rate."""
    for epochs, remedy in [
        (burst(healthy=3), "Lower the learning rate"),
        (run([0.6] * 3 + [0.1] * 3, [{}] * 6), "look at what is rewarded"),
    ]:
        with pytest.raises(RewardCollapse, match=remedy):
            guards.check_reward(epochs, CONFIG)


def test_a_job_that_fails_after_a_burst_names_it():
    """The backend sees only its own update; an earlier one may have broken the model."""
    failed = TrainingJobStatus(run_id="r", backend="b", status=TrainingStatusEnum.FAILED, message="gradient zero")
    with pytest.raises(TrainingFailed, match=r"gradient zero\n  The update of epoch 3 moved.*\n  → Lower the learning"):
        guards.check_job(failed, broken_by=lambda: broken_by_update(burst(then=0), CONFIG))
    with pytest.raises(TrainingFailed, match=r"gradient zero\n  → The backend's log may have details"):
        guards.check_job(failed, broken_by=lambda: broken_by_update(run([0.4], [{}]), CONFIG))


def test_a_workflow_that_fails_on_a_broken_model_is_not_blamed():
    """Rollouts that fail after a too large update fail because of it."""
    counts = tally(rollout_record(str(n), left_out=LeftOutCause.FAILED, error="ValueError: no JSON") for n in range(8))
    with pytest.raises(TooManyFailures, match="Lower the learning rate"):
        guards.check_failures(counts, max_failure_rate=0.5, broken_by=lambda: broken_by_update(burst(then=0), CONFIG))
    with pytest.raises(TooManyFailures, match="Fix the workflow"):
        guards.check_failures(
            counts, max_failure_rate=0.5, broken_by=lambda: broken_by_update(run([0.4], [{}]), CONFIG)
        )


def test_warnings_consider_what_changed():
    """If rollouts went well before, neither the examples nor max_tokens are the cause."""
    epochs = flat(burst(then=5), 5)
    epochs[-1].metrics[TRUNCATED] = 1.0
    found = {finding.cause: str(finding) for finding in alarms(epochs, CONFIG)}
    assert found.keys() == {"too_hard", "truncation", "entropy_collapse"}
    for text in found.values():
        assert "The update of epoch 3 moved the policy too far" in text
        assert "Choose examples" not in text
        assert "max_tokens" not in text
