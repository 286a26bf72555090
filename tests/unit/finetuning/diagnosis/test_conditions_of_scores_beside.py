"""A reward that rises while another score falls is found, and the rollouts where they part."""

import pytest

from fakes.run_records import epoch_record, rollout_record
from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.alarms import alarms
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.facts import Facts
from nat.finetuning.diagnosis.window import Window

RISES, FALLS, FLAT = [0.3, 0.35, 0.5, 0.6, 0.75, 0.8], [0.9, 0.9, 0.8, 0.6, 0.4, 0.3], [0.7] * 6


def epochs_of(rewards, other, **named):
    return [
        epoch_record(
            epoch,
            reward,
            metrics={"reward/std": 0.4, "reward/beside_judge": score, "reward/std_beside_judge": 0.4, **named},
        )
        for epoch, (reward, score) in enumerate(zip(rewards, other, strict=True))
    ]


def found(epochs, rollouts=()):
    findings = diagnosis_of(Window(epochs, facts=Facts(last_rollouts=rollouts))).findings
    return {each.cause: each.seen for each in findings}


def test_a_reward_that_rises_while_another_score_falls_is_named_with_the_rollouts():
    """Those with the highest reward above the other score, each on its own scale; one without both is passed over."""
    rollouts = [
        rollout_record("a", 0, reward=1.0, scores_beside={"judge": 10.0}),
        rollout_record("b", 1, reward=1.0, scores_beside={"judge": 2.0}),
        rollout_record("c", 2, reward=0.0, scores_beside={"judge": 0.0}),
        rollout_record("d", 3, reward=None, scores_beside={"judge": 5.0}),
        rollout_record("e", 4, reward=1.0),
    ]
    assert found(epochs_of(RISES, FALLS), rollouts)["reward_alone_rises"] == (
        "the reward gained +0.450, and the score by 'judge' -0.550 (from 0.900 to 0.350 ± 0.029); they part most in "
        "b/1 (1 and 2)"
    )


@pytest.mark.parametrize(("rewards", "other"), [(RISES, FLAT), (FLAT, FALLS), (RISES, RISES), (FALLS, FALLS)])
def test_other_changes_are_none(rewards, other):
    """Both must move, in different directions."""
    assert "reward_alone_rises" not in found(epochs_of(rewards, other))


def test_chance_is_none():
    """A small fall of a score that differs much between rollouts says nothing."""
    low = [0.50, 0.50, 0.49, 0.49, 0.47, 0.47]
    assert "reward_alone_rises" not in found(epochs_of(RISES, low, **{"reward/std_beside_judge": 5.0}))


def test_a_run_warns_of_it_once_it_is_seen():
    """From six epochs on, though the reward rises."""
    epochs = epochs_of(RISES, FALLS)
    assert "reward_alone_rises" in [each.cause for each in alarms(epochs, GuardsConfig())]
    assert "reward_alone_rises" not in [each.cause for each in alarms(epochs[:5], GuardsConfig())]


def test_an_evaluator_that_comes_later_is_not_judged():
    """Its first scores are not known."""
    epochs = epochs_of(RISES, FALLS)
    epochs[0] = epoch_record(0, 0.3)
    assert "reward_alone_rises" not in found(epochs)
