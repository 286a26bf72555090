from dataclasses import replace

import pytest

from fakes.run_records import epoch_record
from nat.finetuning.diagnosis.causes_of_updates import LEAST_STEPS, SMALLER_STEPS, USUAL_ROLLOUTS, few_steps
from nat.finetuning.diagnosis.evidence import Evidence
from nat.finetuning.diagnosis.find import diagnosis_of
from nat.finetuning.diagnosis.held_out import HeldOut
from nat.finetuning.diagnosis.trend import Trend
from nat.finetuning.diagnosis.updates import Updates
from nat.finetuning.verdict import compare
from nat.runs.shortened import ShortenedUpdates

FLAT = Trend(before=0.2, after=0.21, error=0.02, highest=1.0)
LEARNED = Trend(before=0.2, after=0.8, error=0.02, highest=1.0)
UPDATES = Updates(
    optimizer_steps=60,
    rollouts_per_step=64.0,
    groups_per_step=8.0,
    reach=0.2,
    learning_rate=1e-4,
    entropies=(1.0, 0.9),
)
RUN = Evidence(num_epochs=10, num_rollouts=1280, lowest=0.0, highest=1.0, generations=8.0, trend=FLAT, updates=UPDATES)


def shortened(share):
    """All of ten updates keep this share of their way."""
    return ShortenedUpdates(
        updates=10,
        of=10,
        attempts=10,
        mean_share=share,
        least_share=share,
        learning_rate=1e-4,
        usual_learning_rate=1e-4,
    )


def findings(evidence: Evidence, *, ended: bool = True):
    return list(diagnosis_of(evidence, ended=ended).findings)


def causes(evidence: Evidence, *, ended: bool = True) -> list[str]:
    return [finding.cause for finding in findings(evidence, ended=ended)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"reach": 0.001}, "rate_too_low"),
        ({"reach": None}, "unexplained"),
        ({"shortened": shortened(0.2)}, "rate_too_high"),
        ({"optimizer_steps": 4}, "few_steps"),
        ({"groups_per_step": 1.0}, "few_groups"),
        ({"entropies": (1.0, 0.3)}, "entropy_collapse"),
        ({}, "unexplained"),
    ],
    ids=str,
)
def test_each_number_has_a_healthy_range(changes, expected):
    """A flat reward without an unusual number is reported as such."""
    assert causes(replace(RUN, updates=replace(UPDATES, **changes)))[0] == expected


def test_a_run_that_learned_has_no_cause_in_its_updates():
    """Few steps or one large update did no harm."""
    assert causes(replace(RUN, trend=LEARNED, updates=replace(UPDATES, optimizer_steps=4, reach=0.001))) == []


def test_a_run_that_goes_on_is_not_too_short():
    """Its steps and its reward are judged at its end."""
    short = replace(RUN, updates=replace(UPDATES, optimizer_steps=4))
    assert causes(short) == ["few_steps", "unexplained"][: len(causes(short))]
    assert causes(short, ended=False) == []


@pytest.mark.parametrize(("steps", "is_few"), [(LEAST_STEPS - 1, True), (LEAST_STEPS, False), (LEAST_STEPS + 1, False)])
def test_enough_steps_are_not_few(steps, is_few):
    """A run with exactly the least number of steps is not too short, and one step less is."""
    run = replace(RUN, updates=replace(UPDATES, optimizer_steps=steps))
    assert (few_steps.check(run) is not None) is is_few


@pytest.mark.parametrize(("rollouts", "is_huge"), [(2 * USUAL_ROLLOUTS, False), (2 * USUAL_ROLLOUTS + 1, True)])
def test_few_steps_on_huge_batches_are_to_be_split(rollouts, is_huge):
    """Up to twice the usual number of rollouts in a step, more epochs are the remedy."""
    found = few_steps.check(
        replace(RUN, updates=replace(UPDATES, optimizer_steps=4, rollouts_per_step=float(rollouts)))
    )
    assert found is not None
    assert (found.advice == SMALLER_STEPS) is is_huge


def test_the_learning_rate_to_try_follows_from_the_reach():
    """The reach is proportional to the learning rate."""
    [finding, *_] = findings(replace(RUN, updates=replace(UPDATES, reach=0.002)))
    assert "Raise the learning rate (0.0001 was used; try 0.01)." in finding.remedy


def test_a_learning_rate_is_compared_with_the_default():
    """A tenth of the default is too low, whatever an update reaches; the default is what to use."""
    low = replace(UPDATES, learning_rate=1e-5, usual_learning_rate=1e-3)
    [finding, *_] = findings(replace(RUN, updates=low))
    assert finding.cause == "rate_too_low"
    assert finding.seen.endswith("and the learning rate is 1.0% of this model's default")
    assert "Use this model's default learning rate, 0.001 (1e-05 was used)." in finding.remedy
    assert causes(replace(RUN, updates=replace(low, learning_rate=2e-4))) == ["unexplained"]
    assert causes(replace(RUN, updates=replace(low, shortened=shortened(0.5)))) == [
        "unexplained"
    ]  # max_kl has lowered it


def test_a_huge_batch_can_feed_more_steps():
    """With few rollouts per step, only more epochs help."""
    few = replace(UPDATES, optimizer_steps=3)
    assert "Train for more epochs." in findings(replace(RUN, updates=few))[0].remedy
    huge = replace(few, rollouts_per_step=1280.0)
    assert "Leave training.steps_per_batch out" in findings(replace(RUN, updates=huge))[0].remedy


def test_an_update_that_went_too_far_precedes_what_it_broke():
    """Afterwards every answer is cut off and scores 0, so neither the limit nor the examples are to blame."""
    epoch = epoch_record(1, metrics={"train/approx_kl": 6.0, "train/update_ratio": 0.5, "train/learning_rate": 0.1})
    broken = replace(
        RUN, updates=replace(UPDATES, too_far=(epoch,)), truncated=0.9, truncated_lowest=1.0, equal_groups=0.9, hard=1.0
    )
    [first, *_] = findings(broken)
    assert first.cause == "rate_too_high"
    assert "in 1 of 10 epochs; in epoch 2: KL divergence 6 per token" in first.seen
    assert "try 0.0004" in first.remedy


@pytest.mark.parametrize(
    ("correlation", "tokens", "expected"),
    [
        (0.9, (10.0, 30.0), ["rewards_length"]),
        (-0.9, (30.0, 10.0), ["rewards_length"]),
        (0.9, (10.0, 11.0), []),
        (-0.9, (10.0, 30.0), []),
        (0.5, (10.0, 30.0), []),
    ],
)
def test_length_must_explain_the_score_and_drift(correlation, tokens, expected):
    """Also of a run that learned: its reward may not be worth having."""
    assert causes(replace(RUN, trend=LEARNED, length_correlation=correlation, tokens=tokens)) == expected


def held_out(after, *, count=100, **words):
    """Held-out scores of .2 before training."""
    before = {str(n): float(n % 5 == 0) for n in range(count)}
    return HeldOut(compare(before, {str(n): float(n % 10 < after * 10) for n in range(count)}), **words)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (held_out(0.8), []),
        (held_out(0.2, unseen_words=0.4, usual_unseen=0.4), ["memorises"]),
        (held_out(0.2, unseen_words=0.9, usual_unseen=0.4), ["held_out_differs"]),
        (held_out(0.2, gap_errors=-6.0), ["held_out_differs"]),
        (held_out(0.4, count=10), ["few_held_out"]),
    ],
)
def test_held_out_examples_show_what_was_learned(seen, expected):
    """A gain in training alone is that of other examples, or of its own examples; a wide interval shows neither."""
    assert causes(replace(RUN, trend=LEARNED, held_out=seen)) == expected


def test_a_slow_run_that_improved_hears_of_unusual_numbers_only():
    """An interval above zero is an improvement, even with a learning rate that is far too low."""
    improved = replace(RUN, held_out=held_out(0.3, count=300))
    assert improved.improved
    assert not improved.has_learned
    assert causes(improved) == []
    assert causes(replace(improved, updates=replace(UPDATES, reach=0.005))) == ["rate_too_low"]
