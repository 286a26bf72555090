from math import sqrt

import pytest

from fakes.run_records import epoch_record, epoch_records, rollout_record, validation_record
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.conditions_of_updates import few_steps, reach_of
from nat.finetuning.diagnosis.facts import Facts
from nat.finetuning.diagnosis.trend import trend_of
from nat.finetuning.diagnosis.window import Window
from nat.runs.rollouts import LeftOutCause

STEP = {"train/approx_kl": 0.02, "train/trained_tokens": 800.0, "train/trained_rollouts": 200.0}


def test_a_trend_compares_the_first_third_with_the_last():
    """Its error is that of rollouts of the same examples, whose difficulty cancels."""
    epochs = epoch_records([0.2, 0.2, 0.3, 0.4, 0.6, 0.8], examples={"a": 0.1, "b": 0.9})
    epochs = [e.model_copy(update={"metrics": {"reward/example_variance": 0.24, "reward/std": 0.5}}) for e in epochs]
    trend = trend_of(epochs)
    assert (trend.before, trend.after) == pytest.approx((0.2, 0.7))
    assert trend.error == pytest.approx(sqrt(2 * 0.24 / (2 * 192)))
    assert trend.rose
    assert trend.learned


def test_other_examples_make_the_trend_less_certain():
    """Where epochs play different examples, the variance between examples counts once for each group."""
    epochs = [
        e.model_copy(update={"metrics": {"reward/example_variance": 0.0, "reward/std": 0.5}, "examples": {str(n): 0.5}})
        for n, e in enumerate(epoch_records([0.4, 0.5, 0.6]))
    ]
    assert trend_of(epochs).error == pytest.approx(sqrt(2 * 0.25 / 24))
    assert trend_of(epochs[:1]) is None


def test_examples_that_are_played_once_have_not_learned_by_chance():
    """One rollout each tells nothing of the variance inside an example, so all of the variance is chance."""
    once = {"num_trajectories": 12, "num_groups": 12, "filtered_groups": 0, "groups_without_difference": 12}
    examples = {str(n): 0.0 for n in range(12)}
    epochs = epoch_records([2 / 12, 5 / 12, 5 / 12], examples=examples, metrics={"reward/std": 0.5}, **once)
    trend = trend_of(epochs)
    assert trend.error == pytest.approx(sqrt(2 * 0.25 / 12))
    assert not trend.rose
    assert [finding.cause for finding in diagnosis_of(Window(epochs)).findings] == ["single_rollouts"]


def test_a_small_rise_has_not_learned():
    """The run with the defaults of release 0.5 rose from .39 to .46, of .61 that were possible."""
    trend = trend_of(epoch_records([0.39, 0.46]))
    assert trend.rose
    assert not trend.learned


def test_the_reach_of_an_update_is_bounded_by_its_divergence():
    """Four tokens with a divergence of .02 each: √(.08 / 2); without the numbers it is not known, and never above 1."""
    assert reach_of(STEP) == pytest.approx(0.2)
    assert reach_of({}) is None
    assert reach_of(STEP | {"train/approx_kl": 9.0}) == 1.0


def test_groups_of_one_have_no_difference_to_judge_by():
    """With one rollout per example every group is equal, which says nothing about the score."""
    single = epoch_record(0).model_copy(
        update={"num_trajectories": 24, "num_groups": 24, "groups_without_difference": 24}
    )
    names = ("reward/equal_groups", "reward/equal_groups_lowest", "reward/equal_groups_highest")
    metrics = dict(zip(names, (1.0, 0.1, 0.1), strict=True))
    window = Window([single.model_copy(update={"metrics": metrics})])
    assert (window.generations, window.equal_groups, window.equal_between) == (1.0, 0.0, 0.0)
    assert [finding.cause for finding in diagnosis_of(window).findings] == ["single_rollouts"]


def test_updates_are_counted_over_the_whole_run():
    """An epoch without a training job makes no step."""
    steps = STEP | {"train/optimizer_steps": 3.0, "train/skipped_steps": 1.0, "train/learning_rate": 1e-4}
    epochs = epoch_records([0.5] * 3, metrics=steps)
    epochs[1] = epochs[1].model_copy(update={"filtered_groups": 0})
    window = Window(epochs)
    assert (len(window.updated), window.optimizer_steps) == (2, 6)
    assert "6 optimizer steps, each on 64 rollouts" in few_steps.found(window).seen
    assert few_steps.found(Window(epoch_records([0.5], filtered_groups=0))) is None


def test_examples_are_judged_over_all_epochs():
    """An example is hard if it is never solved, and easy if it was always solved from the start."""
    scores = [{"hard": 0.0, "easy": 1.0, "learned": 0.0}, {"hard": 0.0, "easy": 1.0, "learned": 1.0}]
    epochs = [e.model_copy(update={"examples": own}) for e, own in zip(epoch_records([0.5] * 2), scores, strict=True)]
    window = Window(epochs)
    assert (window.hard, window.easy) == pytest.approx((1 / 3, 1 / 3))


@pytest.mark.parametrize(("score", "expected"), [(0.0, (1.0, 0.0)), (1.0, (0.0, 1.0)), (0.5, (0.0, 0.0))])
def test_equal_scores_are_judged_on_the_usual_scale(score, expected):
    """If all scores are equal, 0 counts as the lowest and 1 as the highest."""
    window = Window([epoch_record(0, score, min_reward=score, max_reward=score, examples={"a": score})])
    assert window.constant
    assert (window.hard, window.easy) == expected


def test_an_epoch_that_failed_counts_by_its_rollouts():
    """Its record is missing, because the run ended in it."""
    lost = [
        rollout_record("a", n, left_out=LeftOutCause.NO_TARGET_FUNCTION, num_calls=1, functions={"planner": 1})
        for n in range(8)
    ]
    facts = Facts(target_functions=["player"], last_rollouts=lost, unfinished=True)
    window = Window(facts=facts)
    assert window.left_out(LeftOutCause.NO_TARGET_FUNCTION) == 1.0
    assert (window.counts, window.trend, window.updated) == ([8], None, [])
    with_epochs = Window(epoch_records([0.5]), facts=facts)
    assert with_epochs.left_out(LeftOutCause.NO_TARGET_FUNCTION) == 8 / 200


def test_held_out_scores_are_compared_from_two_validations_on():
    """Before training and at the last validation; examples without a score are left out."""
    first, last = validation_record(0, {"x": 0.0, "y": None}), validation_record(3, {"x": 1.0, "y": 1.0})
    assert Window(facts=Facts(validations=[first])).held_out is None
    held_out = Window(facts=Facts(validations=[last, first])).held_out
    assert (held_out.before, held_out.after) == (0.0, 1.0)
    nothing_shared = [validation_record(0, {"x": 1.0, "y": None}), validation_record(1, {"x": None, "y": 1.0})]
    assert Window(facts=Facts(validations=nothing_shared)).held_out is None


def test_a_run_that_rose_from_its_own_fall_has_not_learned():
    """An update broke the model in the second epoch; what came back afterwards is no gain."""
    epochs = epoch_records([0.9, 0.1, 0.2, 0.8, 0.9, 0.9])
    assert trend_of(epochs).learned
    assert not Window(epochs).has_learned
    assert Window(epoch_records([0.3, 0.1, 0.2, 0.8, 0.9, 0.9])).has_learned


def test_a_fall_is_more_than_chance():
    """Two epochs of few rollouts often differ by half of the reward."""
    spread = {"metrics": {"reward/std": 0.5}}
    assert Window(epoch_records([0.9, 0.3], **spread)).has_fallen
    assert not Window(epoch_records([0.9, 0.3], num_groups=4, num_trajectories=8, **spread)).has_fallen
