"""The verdict of a probe, and what it says about the cause."""

import pytest

from fakes.probe_reports import MIXED, ONES, ZEROS, report_of
from nat.data_models.finetuning import GuardsConfig
from nat.errors import NoLearningSignal
from nat.finetuning.diagnosis.facts import Noise, ReferenceScores
from nat.finetuning.probe.records import Signal
from nat.finetuning.probe.verdict import raise_without_signal

NOISE = {"deviation": 0.1, "outputs": 64, "scores": 3}


def judged(*groups, **fields):
    report = report_of(*groups, **fields)
    return report.signal, [finding.cause for finding in report.findings]


def test_a_healthy_probe_has_no_findings():
    """Groups that differ are a signal."""
    assert judged(MIXED, MIXED, ZEROS, ONES) == (Signal.FOUND, [])


def test_few_groups_with_a_difference_are_a_weak_signal():
    """Below the share that raises a run's alarm, the more frequent end is the cause."""
    assert judged(MIXED, *[ZEROS] * 7, ONES) == (Signal.WEAK, ["too_hard"])
    assert judged(MIXED, ZEROS, *[ONES] * 7) == (Signal.WEAK, ["too_easy"])
    assert judged(MIXED, *[ZEROS] * 7, ONES, guards=GuardsConfig(max_equal_groups=0.9)) == (Signal.FOUND, [])


@pytest.mark.parametrize(
    ("reward", "references", "cause"),
    [
        (0.0, None, "too_hard"),
        (1.0, None, "too_easy"),
        (0.5, None, "constant_score"),
        (0.0, (1.0, 0.0), "too_hard"),
        (10.0, (10.0, 0.0), "too_easy"),
        (-1.0, (0.0, -1.0), "too_hard"),
        (0.0, (0.0, 0.0), "constant_score"),
        (1.0, (1.0, 1.0), "constant_score"),
        (0.3, (1.0, 0.0), "too_hard"),
        (0.7, (1.0, 0.0), "too_easy"),
    ],
)
def test_one_reward_for_all(reward, references, cause):
    """The dataset's own answers tell hard and easy examples from an evaluator that tells nothing apart."""
    known = None if references is None else ReferenceScores(right=references[0], wrong=references[1])
    signal, causes = judged([reward] * 4, [reward] * 4, references=known)
    assert (signal, causes[0]) == (Signal.NONE, cause)
    assert references is None or len(causes) == 1


def test_examples_of_two_kinds():
    """Where each example always gets the same reward, the finding has both kinds."""
    report = report_of(ZEROS, ZEROS, ONES)
    assert (report.signal, [each.cause for each in report.findings]) == (Signal.NONE, ["too_hard"])
    assert "67% of the examples scored the lowest (0) in almost every rollout, 33% the highest (1)" in str(
        report.findings[0]
    )


def test_answers_that_do_not_vary():
    """Equal outputs explain equal rewards."""
    same = {"rollout/equal_outputs": 1.0}
    signal, causes = judged(ZEROS, [0.25] * 4, [0.5] * 4, metrics=same)
    assert (signal, causes[0]) == (Signal.NONE, "no_variety")


@pytest.mark.parametrize(
    ("share", "signal", "named"),
    [(0.1, Signal.FOUND, []), (0.6, Signal.WEAK, ["noisy_score"]), (0.9, Signal.NONE, ["independent_score"])],
)
def test_noise(share, signal, named):
    """The more of the differences are noise, the weaker the signal; the remedy has a number of scores to average."""
    report = report_of(MIXED, MIXED, noise=Noise(share=share, **NOISE))
    assert (report.signal, [each.cause for each in report.findings]) == (signal, named)
    assert all(("scores of each answer" in each.remedy) == (each.cause == "noisy_score") for each in report.findings)


def test_noise_alone():
    """If the score does not depend on the answer, no average helps."""
    report = report_of(MIXED, noise=Noise(share=1.0, **NOISE))
    assert "does not depend on the answer" in report.sentence
    assert "average" not in report.findings[0].remedy


def test_truncation_explains_equal_rewards():
    """Where most answers are cut off, that is the first cause."""
    truncated = {"time/rollout": 1.0, "rollout/truncated": 0.9}
    assert judged(ZEROS, ZEROS, metrics=truncated) == (Signal.NONE, ["truncation", "too_hard"])
    assert judged(MIXED, MIXED, metrics=truncated | {"rollout/truncated": 0.3}) == (
        Signal.FOUND,
        ["truncation"],
    )


def test_lost_rollouts():
    """A run that would end at once has no signal, whatever the rest says; a few lost rollouts are a finding."""
    stopped = report_of([], stops="8 rollouts were left out", lost_remedy="fix the workflow")
    assert (stopped.signal, [each.cause for each in stopped.findings]) == (Signal.NONE, ["rollouts_lost"])
    assert stopped.interval is stopped.advised_generations is None
    few = {"left_out": {"the workflow raised an error": 2}, "num_rollouts": 10, "lost_remedy": "fix it"}
    assert judged(MIXED, MIXED, **few) == (Signal.FOUND, ["rollouts_failed"])


def test_groups_of_one_rollout_are_lost_ones():
    """If losses leave one rollout of each example, they are the cause."""
    lost = {"left_out": {"the workflow raised an error": 2}, "num_rollouts": 4}
    assert judged([0.0], [1.0], **lost)[1][0] == "rollouts_failed"


def test_an_algorithm_that_compares_across_groups():
    """Different rewards anywhere are a signal for it; one reward for all is none."""
    assert judged(ZEROS, ONES, across_groups=True) == (Signal.FOUND, [])
    assert judged(ZEROS, ZEROS, across_groups=True) == (Signal.NONE, ["too_hard", "constant_score"])


def test_the_error_has_the_first_finding():
    """Without a signal, the command fails with the cause, its numbers and the remedy."""
    with pytest.raises(NoLearningSignal, match="no signal: the examples are too hard") as raised:
        raise_without_signal(report_of(ZEROS, ZEROS))
    assert "100% of the examples scored the lowest (0)" in str(raised.value)
    assert "With 32 generations" in raised.value.hint
    assert "Choose examples that are sometimes solved" in raised.value.hint
    raise_without_signal(report_of(MIXED, ZEROS))
