import pytest

from fakes.run_records import epoch_records, validation_record
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.conditions_of_updates import SMALLER_STEPS, USUAL_ROLLOUTS, few_steps, unexplained
from nat.finetuning.diagnosis.facts import Facts
from nat.finetuning.diagnosis.window import Window
from nat.runs.records import ValidationRecord

FLAT, LEARNED = [0.2] * 10, [0.2] * 5 + [0.8] * 5
UPDATE = {
    "train/optimizer_steps": 6.0,
    "train/approx_kl": 0.02,
    "train/trained_tokens": 4.0 * 192,
    "train/trained_rollouts": 192.0,
    "train/learning_rate": 1e-4,
    "train/entropy": 0.9,
}
"""Four tokens of a rollout, with a divergence of .02 each: it changes a fifth of the rollouts."""


def run(rewards=FLAT, *, validations=(), words=(None, None), last=None, **metrics) -> Window:
    """Ten epochs of 192 rollouts, whose updates have these metrics, and the last three ones others."""
    own = {f"train/{name}": value for name, value in metrics.items()}
    epochs = epoch_records(rewards, metrics={k: v for k, v in (UPDATE | own).items() if v is not None})
    for epoch in epochs[-3:]:
        epoch.metrics.update(last or {})
    return Window(epochs, facts=Facts(validations=validations, unseen_words=words[0], usual_unseen=words[1]))


def findings(window: Window, *, ended: bool = True):
    return list(diagnosis_of(window, ended=ended).findings)


def causes(window: Window, *, ended: bool = True) -> list[str]:
    return [finding.cause for finding in findings(window, ended=ended)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"approx_kl": 1e-6}, "rate_too_low"),
        ({"approx_kl": None}, "unexplained"),
        ({"optimizer_steps": 0.4}, "few_steps"),
        ({"optimizer_steps": 24.0}, "few_groups"),
        ({"last": {"train/entropy": 0.3}}, "entropy_collapse"),
        ({}, "unexplained"),
    ],
    ids=str,
)
def test_each_number_has_a_healthy_range(changes, expected):
    """A flat reward without an unusual number is reported as such."""
    assert causes(run(**changes))[0] == expected


def test_a_run_that_learned_has_no_cause_in_its_updates():
    """Few steps or one large update did no harm."""
    assert causes(run(LEARNED, optimizer_steps=0.4, approx_kl=1e-6)) == []


def test_a_run_that_goes_on_is_not_too_short():
    """Its steps and its reward are judged at its end; beside a number out of its range, none is called healthy."""
    short = run(optimizer_steps=0.4)
    assert causes(short) == ["few_steps"]
    assert causes(short, ended=False) == []


@pytest.mark.parametrize(("steps", "is_few"), [(19, True), (20, False), (21, False)])
def test_enough_steps_are_not_few(steps, is_few):
    """A run with exactly the least number of steps is not too short, and one step less is."""
    assert (few_steps.found(run(optimizer_steps=steps / 10)) is not None) is is_few


@pytest.mark.parametrize(("rollouts", "is_huge"), [(2 * USUAL_ROLLOUTS, False), (2 * USUAL_ROLLOUTS + 1, True)])
def test_few_steps_on_huge_batches_are_to_be_split(rollouts, is_huge):
    """Up to twice the usual number of rollouts in a step, more epochs are the remedy."""
    found = few_steps.found(Window(epoch_records([0.2] * 4, filtered_trajectories=rollouts)))
    assert found is not None
    assert found.remedy.startswith(SMALLER_STEPS if is_huge else "Train for more epochs.")


def test_the_learning_rate_to_try_follows_from_the_reach():
    """The reach is proportional to the learning rate."""
    [finding, *_] = findings(run(approx_kl=2e-6))
    assert "Raise the learning rate (0.0001 was used; try 0.01)." in finding.remedy


def test_a_learning_rate_is_compared_with_the_default():
    """A tenth of the default is too low, whatever an update reaches; the default is what to use."""
    low = {"learning_rate": 1e-5, "usual_learning_rate": 1e-3}
    [finding, *_] = findings(run(**low))
    assert finding.cause == "rate_too_low"
    assert finding.seen.endswith("and the learning rate is 1.0% of this model's default")
    assert "Use this model's default learning rate, 0.001 (1e-05 was used)." in finding.remedy
    assert causes(run(**low | {"learning_rate": 2e-4})) == ["unexplained"]
    assert causes(run(**low, kept_share=0.5, shortenings=1.0)) == ["unexplained"]  # max_kl has lowered it


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
    window = run(LEARNED)
    for place, epoch in enumerate(window.epochs):
        epoch.metrics["reward/length_correlation"] = correlation
        epoch.metrics["rollout/completion_tokens"] = tokens[place >= 5]
    assert causes(window) == expected


def held_out(after, *, count=100) -> list[ValidationRecord]:
    """Held-out scores of .2 before training."""
    scores = [
        {str(n): float(n % 5 == 0) for n in range(count)},
        {str(n): float(n % 10 < after * 10) for n in range(count)},
    ]
    return [validation_record(epoch, own) for epoch, own in zip((0, 10), scores, strict=True)]


def solved_from_the_start(count=60):
    """Held-out scores that could rise by a fiftieth only."""
    scores = {str(n): float(n % 50 != 0) for n in range(count)}
    return [validation_record(epoch, scores) for epoch in (0, 10)]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"validations": held_out(0.8)}, []),
        ({"validations": held_out(0.2), "words": (0.4, 0.4)}, ["memorises"]),
        ({"validations": held_out(0.2), "words": (0.9, 0.4)}, ["held_out_differs"]),
        ({"validations": solved_from_the_start()}, []),
        ({"validations": held_out(0.4, count=10)}, ["few_held_out"]),
    ],
    ids=["gains", "memorises", "other words", "solved", "few"],
)
def test_held_out_examples_show_what_was_learned(seen, expected):
    """A gain in training alone is that of other examples, or of its own examples; a wide interval shows neither."""
    assert causes(run(LEARNED, **seen)) == expected


def test_noise_comes_before_too_few_held_out_examples():
    """More examples cost more than a score without noise; where the gain is shown, noise does no harm."""
    unclear, clear = run(LEARNED, validations=held_out(0.4, count=10)), run(LEARNED, validations=held_out(0.8))
    noisy = {"compared": 200.0, "example_variance": 0.25, "repeats": 100.0, "repeat_variance": 0.2}
    for epoch in (*unclear.epochs, *clear.epochs):
        epoch.metrics.update({f"reward/{name}": value for name, value in noisy.items()})
    assert causes(unclear) == ["noisy_score", "few_held_out"]
    assert causes(clear) == []


def test_held_out_examples_of_another_score_are_of_another_kind():
    """Their scores before training are compared with those of the first epoch, by the variance of both."""
    window = run(LEARNED, validations=held_out(0.2))
    window.epochs[0].examples.update({str(n): 0.8 + n % 2 / 10 for n in range(20)})
    window.epochs[0].metrics["reward/std"] = 0.4
    [finding] = findings(window)
    assert finding.cause == "held_out_differs"
    assert "before training, the scores differed by" in finding.seen


def test_a_slow_run_that_improved_hears_of_unusual_numbers_only():
    """An interval above zero is an improvement, even with a learning rate that is far too low."""
    improved = run(validations=held_out(0.3, count=300))
    assert improved.improved
    assert not improved.has_learned
    assert causes(improved) == []
    assert causes(run(validations=held_out(0.3, count=300), approx_kl=1e-5)) == ["rate_too_low"]


SPREAD = {"reward/example_variance": 0.16, "reward/std": 0.4}


@pytest.mark.parametrize(
    ("approx_kl", "told"),
    [
        (0.02, "could raise it by 1.6 at the most, and only more than 0.047 would be seen"),
        (0.00001, "could raise it by 0.036 at the most, and only more than 0.047 would be seen"),
    ],
)
def test_where_no_number_is_unusual_what_was_possible_is_told(approx_kl, told):
    """Ten updates of √(2 · 4 · .02) · .4 each; a smaller gain is hidden by the noise, so more epochs would tell."""
    window = run(approx_kl=approx_kl, optimizer_steps=6.0)
    for epoch in window.epochs:
        epoch.metrics.update(SPREAD)
    found = unexplained.found(window)
    assert told in found.seen
    assert ("So more epochs would tell, 12 or more." in found.remedy) == (approx_kl < 0.001)


@pytest.mark.parametrize(("kept", "expected"), [(0.2, ["held_back"]), (0.9, [])])
def test_a_run_that_rises_hears_what_slows_it(kept, expected):
    """`max_kl` that keeps little of an update costs epochs, though the run is healthy otherwise."""
    slowed = {"kept_share": kept, "shortenings": 2.0, "usual_learning_rate": 1e-4}
    assert causes(run(LEARNED, **slowed)) == expected
    assert "held_back" not in causes(run(FLAT, **slowed))
