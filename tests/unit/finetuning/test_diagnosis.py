"""Each condition by its numbers, the warnings of the last epochs, and what explains a fall."""

import pytest
from epoch_metrics import EPOCH
from update_metrics import UPDATE

from fakes.run_records import NOON, epoch_record, epoch_records, rollout_record, validation_record
from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis import gather
from nat.finetuning.diagnosis.catalogue import alarms, diagnosis_of, explanation_of
from nat.finetuning.diagnosis.conditions import CONDITIONS, reach_of
from nat.finetuning.diagnosis.gather import diagnoses, findings_of
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.metrics import SAME_ANSWER, SAME_SCORE, metrics_of_rollouts, prefixed
from nat.runs.journal import Journal
from nat.runs.records import CommonAnswer, Phase, TrainingPhase
from nat.runs.rollouts import LeftOutCause

GUARDS = GuardsConfig()
KL, WEIGHTS, ENTROPY = "train/approx_kl", "train/update_ratio", "train/entropy"
LEARNED = [0.2, 0.2, 0.8, 0.8]
HEALTHY = {
    "rollout/calls": 1.0,
    "train/optimizer_steps": 6.0,
    KL: 0.02,
    "train/trained_tokens": 4.0 * 192,
    "train/trained_rollouts": 192.0,
    "train/learning_rate": 1e-4,
    "train/usual_learning_rate": 1e-4,
    ENTROPY: 0.9,
}
"""Of epochs of 24 groups of 8 rollouts."""
SPREAD = {"reward/compared": 200.0, "reward/example_variance": 0.25, "reward/repeats": 100.0}
BY_OUTPUT = {"reward/repeat_variance": 0.0, "reward/row_repeats": 100.0, "reward/row_repeat_variance": 0.0}
BY_OTHERS = SPREAD | BY_OUTPUT | {"reward/row_repeat_variance": 0.25}
"""Rollouts whose rows are equal differ as much as others."""
BY_CHANCE = BY_OTHERS | {"reward/repeat_variance": 0.25}
CUT = {"rollout/truncated": 1.0, "reward/truncated_lowest": 1.0}
LOST = {"rollout/calls": 1.0, "rollout/lost_calls_malformed": 10.0, "rollout/lost_calls_cut_off": 30.0}


def window_of(metrics=None, *, rewards=(0.5,) * 4, more=None, **fields) -> Window:
    epochs = epoch_records(rewards, num_rollouts=192, metrics=HEALTHY | (metrics or {}), **fields)
    return Window(epochs, **(more or {}))


def causes(*args, **kwargs) -> list[str]:
    return [finding.cause for finding in diagnosis_of(window_of(*args, **kwargs)).findings]


def groups(equal, *, hard=0, easy=0, between=0):
    """So many of 20 groups without a difference, and examples that are never, always, or half solved."""
    names = ("reward/equal_groups", "reward/equal_groups_lowest", "reward/equal_groups_highest")
    metrics = dict(zip(names, (equal / 20, (equal - between) / 20, 0.0), strict=True))
    examples = {str(n): 0.0 if n < hard else 1.0 if n < hard + easy else 0.5 for n in range(20)}
    return {"num_groups": 20, "groups_without_difference": equal, "examples": examples, "metrics": metrics}


def left_out(cause, count):
    return {"left_out": {cause: count}}


@pytest.mark.parametrize(
    ("name", "bad", "fine"),
    [
        ("rollouts_failed", left_out(LeftOutCause.FAILED, 40), left_out(LeftOutCause.FAILED, 10)),
        ("rollouts_failed", {"metrics": {"rollout/tool_errors": 0.6}}, {"metrics": {"rollout/tool_errors": 0.4}}),
        ("calls_lost", left_out(LeftOutCause.NO_LOGPROBS, 60), left_out(LeftOutCause.NO_LOGPROBS, 4)),
        ("calls_lost", {"metrics": {"rollout/without_calls": 0.3}}, {"metrics": {"rollout/without_calls": 0.01}}),
        ("calls_lost", {"metrics": BY_OTHERS}, {"metrics": SPREAD | BY_OUTPUT}),
        ("wrong_target", left_out(LeftOutCause.NO_TARGET_FUNCTION, 60), left_out(LeftOutCause.NO_TARGET_FUNCTION, 4)),
        ("wrong_target", left_out(LeftOutCause.NO_TARGET_MODEL, 60), left_out(LeftOutCause.NO_TARGET_MODEL, 4)),
        ("wrong_target", {"metrics": BY_OTHERS | {"rollout/trained_tokens": 0.5}}, {}),
        ("sampling_changed", left_out(LeftOutCause.UNTRAINABLE_SAMPLING, 60), {}),
        (
            "sampling_changed",
            {"metrics": {"drift/untempered_calls": 60.0}},
            {"metrics": {"drift/untempered_calls": 6.0}},
        ),
        ("truncation", {"metrics": CUT}, {"metrics": CUT | {"reward/truncated_lowest": 0.5}}),
        ("truncation", {"metrics": CUT | {"rollout/truncated": 0.3}}, {"metrics": CUT | {"rollout/truncated": 0.1}}),
        (
            "truncation",
            {"metrics": CUT | {"rollout/truncated": 0.5, "reward/whole_lowest": 0.5}},
            {"metrics": CUT | {"rollout/truncated": 0.5, "reward/whole_lowest": 0.95}},
        ),
        ("tool_calls_unread", {"metrics": LOST}, {"metrics": LOST | {"rollout/lost_calls_cut_off": 0.0}}),
        ("constant_score", {"min_reward": 0.5, "max_reward": 0.5}, {"min_reward": 0.4, "max_reward": 0.5}),
        (
            "independent_score",
            {"metrics": BY_CHANCE},
            {"metrics": BY_CHANCE | {"reward/repeats": 5.0, "reward/row_repeats": 5.0}},
        ),
        ("independent_score", groups(18, between=18), groups(12, between=12)),
        ("too_hard", groups(18, hard=18), groups(12, hard=12)),
        ("too_easy", groups(18, easy=18), groups(12, easy=12)),
        ("rate_too_high", {"metrics": {KL: 0.5}}, {"metrics": {KL: 0.1}}),
        ("rate_too_high", {"metrics": {"train/kept_share": 0.2}}, {"metrics": {"train/kept_share": 0.6}}),
        ("untrained", {"metrics": {"train/trained_groups": 0.0}, "max_reward": 0.6}, {}),
        (
            "answers_cached",
            {"metrics": {"rollout/without_calls": 0.75, "rollout/cached": 0.75}},
            {"metrics": {"rollout/without_calls": 0.04, "rollout/cached": 0.04}},
        ),
        (
            "answers_alike",
            {"metrics": {SAME_ANSWER: 0.95, SAME_SCORE: 0.4}},
            {"metrics": {SAME_ANSWER: 0.7, SAME_SCORE: 0.4}},
        ),
        (
            "answers_alike",
            {"metrics": {SAME_ANSWER: 1.0, SAME_SCORE: 0.4}},
            {"metrics": {SAME_ANSWER: 1.0, SAME_SCORE: 1.0}},
        ),
        ("rate_too_low", {"metrics": {KL: 1e-6}}, {}),
        ("few_steps", {"metrics": {"train/optimizer_steps": 4.0}}, {"metrics": {"train/optimizer_steps": 5.0}}),
    ],
    ids=str,
)
def test_each_number_has_a_healthy_range(name, bad, fine):
    """Beyond the range the cause comes first; within it, nothing is found."""
    assert causes(**bad)[:1] == [name]
    assert causes(**fine) == []


def test_every_condition_says_what_to_do():
    """In the page of causes, and where it is found; the backend reports what they read."""
    assert all(each.range_in(GUARDS) and each.remedy.endswith(".") for each in CONDITIONS)
    assert {KL, ENTROPY, WEIGHTS, "train/kept_share"} <= prefixed(dict.fromkeys(UPDATE, 0.0)).keys()
    assert {"rollout/truncated", "rollout/tool_errors", "reward/row_repeats"} <= EPOCH.keys()


def test_a_run_that_learned_is_excused():
    """Few steps or one large update did no harm; a run that goes on is not too short either."""
    few = {"train/optimizer_steps": 0.4}
    assert causes(few, rewards=LEARNED) == []
    assert "few_steps" not in [f.cause for f in diagnosis_of(window_of(few, more={"ended": False})).findings]
    assert causes(few) == ["few_steps"]
    assert causes(rewards=[0.9, 0.1, 0.2, 0.8, 0.9, 0.9], **left_out(LeftOutCause.FAILED, 90)) == ["rollouts_failed"]
    assert not window_of(rewards=[0.9, 0.1, 0.2, 0.8, 0.9, 0.9]).learned  # it rose from its own fall
    assert not window_of(rewards=[0.39, 0.46]).learned  # a small part of what was possible


def test_what_comes_first_in_a_run_is_named_first():
    """Rollouts without any call have no call of the target; an update that went too far breaks the answers."""
    lost = left_out(LeftOutCause.NO_TARGET_FUNCTION, 144)
    assert causes({"rollout/without_calls": 0.75}, **lost) == ["calls_lost"]
    epochs = epoch_records([0.2] * 10, metrics=HEALTHY | CUT, groups_without_difference=22, examples={"a": 0.0})
    epochs[1].metrics.update({KL: 6.0, WEIGHTS: 0.5, "train/learning_rate": 0.1})
    [first, *_] = diagnosis_of(Window(epochs)).findings
    assert first.cause == "rate_too_high"
    assert first.seen.startswith("the update of epoch 2 moved the policy too far: KL divergence 6 per token")
    assert "try 0.0004" in first.remedy


def test_a_cache_is_named_alone():
    """Its calls are not lost, and its groups of one say nothing of num_generations, which is known."""
    seen = {"metrics": {"rollout/without_calls": 0.75, "rollout/cached": 0.75}, "num_trajectories": 24}
    [finding] = diagnosis_of(window_of(**seen, groups_without_difference=24)).findings
    assert "cache" in finding.title
    assert "num_generations" not in str(finding)
    before, cached = rollout_record("a", num_calls=1), rollout_record("a", num_calls=0)
    epochs = epoch_records([0.5], metrics=metrics_of_rollouts([before]))
    window = Window(epochs, rollouts=[cached], unfinished=True)
    assert [each.cause for each in diagnosis_of(window).findings] == ["answers_cached"]  # a second pass over the data


def held_out_answers(epoch, score, share):
    """Ten held-out examples, and the share of them with the most frequent answer."""
    scores = {str(n): float(n < score * 10) for n in range(10)}
    common = CommonAnswer(text='{"label": "billing"}', share=share, score=score)
    return validation_record(epoch, scores).model_copy(update={"commonest": common})


@pytest.mark.parametrize("played", [True, False])
def test_a_collapsed_model_is_not_healthy_though_it_improved(played):
    """It gives one answer to nearly all examples, which is right for some of them; also after imitation."""
    more = {"validations": [held_out_answers(0, 0.0, 0.3), held_out_answers(4, 0.7, 0.99)]}
    found = diagnosis_of(window_of(more=more, rewards=LEARNED, played=played))
    assert found.window.learned
    assert not found.healthy
    assert [each.cause for each in found.findings] == ["answers_alike"]
    assert '99% of the held-out answers after epoch 4 (\'{"label"' in found.findings[0].seen
    assert found.findings[0].remedy.startswith("If rows have answers, imitate these first (`nat runs imitate latest`")
    right = {"validations": [held_out_answers(0, 0.0, 0.3), held_out_answers(4, 1.0, 0.99)]}
    assert diagnosis_of(window_of(more=right, rewards=LEARNED)).healthy  # the same answer may be right


def test_without_a_cause_nothing_is_called_healthy():
    """A run on a file says its loss and the held-out scores, since its rewards of 1 say nothing."""
    assert str(diagnosis_of(window_of())).startswith("No cause found. The mean reward was 0.500")
    same = [validation_record(epoch, {str(n): 0.5 for n in range(8)}) for epoch in (0, 4)]
    imitated = epoch_records([1.0] * 4, played=False, metrics=HEALTHY | {"train/loss": 2.5})
    imitated[-1].metrics["train/loss"] = 0.5
    text = str(diagnosis_of(Window(imitated, validations=same)))
    assert text.startswith("No cause found. The loss on the file's rows was 2.500 at first, 0.500 in the last epoch.")
    assert "No improvement shown: 0.500" in text
    assert "1.000" not in text


@pytest.mark.parametrize(
    ("seen", "lost", "told"),
    [
        (
            {"functions": {"planner": 1}},
            LeftOutCause.NO_TARGET_FUNCTION,
            "target_functions: plannr; calls: planner (8)",
        ),
        ({"models": {"student": 1}}, LeftOutCause.NO_TARGET_MODEL, "student (8). Did you mean 'student'?"),
    ],
)
def test_a_target_that_was_not_seen_is_shown_beside_what_was_seen(seen, lost, told):
    """The two names show a spelling mistake."""
    rollouts = [rollout_record(str(n), **seen) for n in range(8)]
    more = {"rollouts": rollouts, "target_functions": ["plannr"], "target_model": "studnet"}
    [finding, *_] = diagnosis_of(window_of(more=more, **left_out(lost, 192))).findings
    assert told in finding.seen


def test_the_learning_rate_to_try_follows_from_the_reach():
    """The reach is proportional to the learning rate; √(tokens · KL / 2), and never above 1."""
    assert reach_of(HEALTHY) == pytest.approx(0.2)
    assert (reach_of({}), reach_of(HEALTHY | {KL: 9.0})) == (None, 1.0)
    [finding, *_] = diagnosis_of(window_of({KL: 2e-6})).findings
    assert "Raise the learning rate (0.0001 was used; try 0.01)." in finding.remedy
    [finding, *_] = diagnosis_of(window_of({"train/learning_rate": 1e-6, KL: 2e-6})).findings
    assert "Use this model's default learning rate, 0.0001 (1e-06 was used)." in finding.remedy


def test_a_held_out_gain_is_learning():
    """Also of a run on a file, whose rewards say nothing; two validations must share an example."""
    better = [validation_record(epoch, {str(n): float(epoch) for n in range(10)}) for epoch in (0, 1)]
    assert window_of({KL: 1e-6}, more={"validations": better}, played=False).learned
    assert not window_of(more={"validations": better[:1]}, played=False).learned
    apart = [validation_record(0, {"x": 1.0}), validation_record(1, {"y": 1.0})]
    assert window_of(more={"validations": apart}).held_out is None
    assert causes({KL: 1e-6}, played=False) == ["rate_too_low"]


def warned(epochs, guards=GUARDS, compares="group"):
    return [each.cause for each in alarms(epochs, guards, compares)]


def test_the_last_epochs_are_warned_of():
    """A level by the last epoch, groups by five of them, entropy by twenty; the level is configurable."""
    cut = epoch_record(metrics={"rollout/truncated": 0.25})
    assert warned([]) == warned(epoch_records([0.1] * 30)) == []
    assert warned([cut]) == ["truncation"]
    assert warned([cut, epoch_record(1)]) == warned([cut], GuardsConfig(max_truncated=0.3)) == []
    equal = epoch_records([0.5] * 5, groups_without_difference=20, examples={"a": 0.0, "b": 1.0})
    assert (warned(equal), warned(equal[1:]), warned(equal, compares="batch")) == (["too_hard"], [], [])
    fall = [epoch_record(n, metrics={ENTROPY: 1.0 if n == 0 else 0.45}) for n in range(22)]
    assert (warned(fall[:21]), warned(fall)) == (["answers_alike"], [])
    assert warned([epoch_record(metrics={"train/trained_groups": 0.0})]) == ["untrained"]


def run(rewards, metrics):
    """One epoch per reward, each with its metrics."""
    quiet = HEALTHY | {WEIGHTS: 0.0015, "rollout/truncated": 0.0}
    epochs = epoch_records(rewards)
    return [e.model_copy(update={"metrics": quiet | own}) for e, own in zip(epochs, metrics, strict=True)]


@pytest.mark.parametrize(
    ("rewards", "metrics", "cause"),
    [
        ([0.4, 0.45, 0.0], [{}, {KL: 0.5}, {}], "rate_too_high"),
        ([0.4, 0.45, 0.1], [{}, {WEIGHTS: 0.05, KL: 0.01}, {}], None),
        ([0.4, 0.6, 0.1], [{KL: 9.1}, {}, {}], None),
        ([0.4, 0.45, 0.1], [{}, {}, {"rollout/truncated": 0.9}], "truncation"),
        ([0.4, 0.45, 0.1], [{}, {}, {ENTROPY: 0.1}], "answers_alike"),
        ([0.4, 0.45, 0.1], [{}, {}, {}], None),
        ([], [], None),
    ],
)
def test_a_fall_is_explained_by_what_changed_since_the_best_epoch(rewards, metrics, cause):
    """An update is asked for first; what was so before cannot be the reason."""
    found = explanation_of(run(rewards, metrics), GUARDS)
    assert (found and found.cause) == cause


@pytest.fixture
def journal(tmp_path):
    with Journal.create(tmp_path, "run-1", "finetuning:\n  target_functions: [plannr]\n", created_at=NOON) as journal:
        yield journal


def test_a_run_that_failed_in_its_first_epoch_is_judged_by_its_rollouts(journal):
    """The epoch has no record; the target is read from the run's configuration."""
    assert str(diagnoses(journal, ended=True)[""]) == "No cause found."
    left = {"left_out": LeftOutCause.NO_TARGET_FUNCTION, "num_calls": 1, "functions": {"planner": 1}}
    journal.record_rollouts(Phase.TRAIN, 0, [rollout_record("a", g, **left) for g in range(8)])
    found = diagnoses(journal, ended=True)[""]
    [finding] = found.findings
    assert (finding.cause, found.healthy) == ("wrong_target", False)
    assert "target_functions: plannr; calls: planner (8)" in finding.seen
    text = str(found)
    assert text.startswith("Not learning.")
    assert f"1. {finding.title} (100% of the signal)\n   seen     {finding.seen}\n" in text


async def test_phases_are_judged_by_themselves(journal, monkeypatch):
    """Their rewards measure different things; one that goes on by its last epochs, its end by all of them."""
    monkeypatch.setattr(gather, "MOST_EPOCHS", 2)
    for name, first in (("sft", 0), ("grpo", 3)):
        journal.record(TrainingPhase(name=name, first_epoch=first, num_epochs=4))
    for epoch in range(7):
        journal.record(epoch_record(epoch, 0.5, metrics=HEALTHY | ({} if epoch < 3 else {KL: 1e-6})))
    judged = {name: [f.cause for f in own.findings] for name, own in diagnoses(journal, ended=True).items()}
    assert judged == {"sft": ["few_steps"], "grpo": ["rate_too_low"]}
    titles = [finding.title for finding in await findings_of(journal.run_dir, ended=True)]
    assert all(title.startswith(("Phase sft: ", "Phase grpo: ")) for title in titles)
    assert [finding.cause for finding in await findings_of(journal.run_dir, ended=False)] == ["rate_too_low"]
