"""The verdict of a probe, and what it says about the cause."""

import pytest

from nat.errors import NoLearningSignal
from nat.finetuning.probe.records import ExampleResult, Measured, Noise, ProbeCause, ReferenceScores, Signal
from nat.finetuning.probe.statistics import prospects, value_counts
from nat.finetuning.probe.verdict import judge, raise_without_signal


def measured(*groups, **fields) -> Measured:
    """A probe with these rewards by example."""
    examples = [
        ExampleResult(id=str(number), rewards=list(group), differs=len(set(group)) > 1)
        for number, group in enumerate(groups)
    ]
    counts = value_counts([group for group in groups if group])
    facts = {
        "config_file": "c.yml",
        "model": {"student": "tiny"},
        "reward": "match",
        "num_examples": 100,
        "examples": examples,
        "num_rollouts": sum(map(len, groups)),
        "left_out": {},
        "failures": [],
        "metrics": {"time/rollout": 1.0},
        "seconds_per_rollout": 0.1,
        "longest_answer": 5,
        "configured_generations": 4,
        "max_equal_groups": 0.8,
        "max_truncated": 0.2,
        "prospects": prospects(counts) if counts else [],
    }
    return Measured(**facts | fields)


ZEROS, ONES, MIXED = [0.0] * 4, [1.0] * 4, [0.0, 1.0, 0.0, 1.0]
NOISE = {"deviation": 0.1, "outputs": 64, "scores": 3}


def judged(*groups, **fields):
    report = judge(measured(*groups, **fields))
    return report.signal, [finding.cause for finding in report.findings]


def test_a_healthy_probe_has_no_findings():
    """Groups that differ are a signal."""
    assert judged(MIXED, MIXED, ZEROS, ONES) == (Signal.FOUND, [])


def test_few_groups_with_a_difference_are_a_weak_signal():
    """Below the share that raises a run's alarm, the more frequent end is the cause."""
    assert judged(MIXED, *[ZEROS] * 7, ONES) == (Signal.WEAK, [ProbeCause.TOO_HARD])
    assert judged(MIXED, ZEROS, *[ONES] * 7) == (Signal.WEAK, [ProbeCause.TOO_EASY])
    assert judged(MIXED, *[ZEROS] * 7, ONES, max_equal_groups=0.9) == (Signal.FOUND, [])


@pytest.mark.parametrize(
    ("reward", "references", "cause"),
    [
        (0.0, None, ProbeCause.TOO_HARD),
        (1.0, None, ProbeCause.TOO_EASY),
        (0.5, None, ProbeCause.CONSTANT),
        (0.0, (1.0, 0.0), ProbeCause.TOO_HARD),
        (10.0, (10.0, 0.0), ProbeCause.TOO_EASY),
        (-1.0, (0.0, -1.0), ProbeCause.TOO_HARD),
        (0.0, (0.0, 0.0), ProbeCause.CONSTANT),
        (1.0, (1.0, 1.0), ProbeCause.CONSTANT),
    ],
)
def test_one_reward_for_all(reward, references, cause):
    """The dataset's own answers tell hard and easy examples from an evaluator that tells nothing apart."""
    known = None if references is None else ReferenceScores(right=references[0], wrong=references[1])
    assert judged([reward] * 4, [reward] * 4, references=known) == (Signal.NONE, [cause])


def test_examples_of_two_kinds():
    """Where each example always gets the same reward, there is nothing to compare."""
    assert judged(ZEROS, ZEROS, ONES) == (Signal.NONE, [ProbeCause.ALL_OR_NOTHING])


def test_answers_that_do_not_vary():
    """Equal outputs explain equal rewards."""
    examples = [
        ExampleResult(id=str(n), rewards=[n / 4] * 4, differs=False, same_outputs=True, left_out=0) for n in range(3)
    ]
    assert judged(ZEROS, ONES, examples=examples) == (Signal.NONE, [ProbeCause.SAME_ANSWERS])


@pytest.mark.parametrize(
    ("share", "signal", "named"),
    [(0.1, Signal.FOUND, False), (0.35, Signal.FOUND, True), (0.6, Signal.WEAK, True), (0.9, Signal.NONE, True)],
)
def test_noise(share, signal, named):
    """The more of the differences are noise, the weaker the signal; the remedy has a number of scores to average."""
    report = judge(measured(MIXED, MIXED, noise=Noise(share=share, **NOISE)))
    assert (report.signal, [each.cause for each in report.findings]) == (signal, [ProbeCause.NOISE] * named)
    assert all("scores of each answer" in each.remedy for each in report.findings)


def test_noise_alone():
    """If the score does not depend on the answer, no average helps."""
    report = judge(measured(MIXED, noise=Noise(share=1.0, **NOISE)))
    assert "does not depend on the answer" in report.findings[0].remedy


def test_truncation_explains_equal_rewards():
    """Where most answers are cut off, that is the first cause."""
    truncated = {"time/rollout": 1.0, "rollout/truncated": 0.9}
    assert judged(ZEROS, ZEROS, metrics=truncated) == (Signal.NONE, [ProbeCause.TRUNCATED, ProbeCause.TOO_HARD])
    assert judged(MIXED, MIXED, metrics=truncated | {"rollout/truncated": 0.3}) == (
        Signal.FOUND,
        [ProbeCause.TRUNCATED],
    )


def test_lost_rollouts():
    """A run that would end at once has no signal, whatever the rest says; a few lost rollouts are a finding."""
    stopped = judge(measured([], stops="8 rollouts were left out", lost_remedy="fix the workflow"))
    assert (stopped.signal, [each.cause for each in stopped.findings]) == (Signal.NONE, [ProbeCause.LOST])
    assert stopped.interval is stopped.advised_generations is None
    few = {"left_out": {"the workflow raised an error": 2}, "num_rollouts": 10, "lost_remedy": "fix it"}
    assert judged(MIXED, MIXED, **few) == (Signal.FOUND, [ProbeCause.LOST])


def test_groups_of_one_rollout_are_lost_ones():
    """If losses leave one rollout of each example, they are the cause."""
    lost = {"left_out": {"the workflow raised an error": 2}, "num_rollouts": 4}
    assert judged([0.0], [1.0], **lost) == (Signal.NONE, [ProbeCause.LOST])


def test_an_algorithm_that_compares_across_groups():
    """Different rewards anywhere are a signal for it; one reward for all is none."""
    assert judged(ZEROS, ONES, across_groups=True) == (Signal.FOUND, [])
    assert judged(ZEROS, ZEROS, across_groups=True) == (Signal.NONE, [ProbeCause.TOO_HARD])


def test_the_error_has_the_first_finding():
    """Without a signal, the command fails with the cause, its numbers and the remedy."""
    with pytest.raises(NoLearningSignal, match="no signal: too hard") as raised:
        raise_without_signal(judge(measured(ZEROS, ZEROS)))
    assert "Every reward is 0." in str(raised.value)
    assert "easier examples" in raised.value.hint
    raise_without_signal(judge(measured(MIXED, ZEROS)))
