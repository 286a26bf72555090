import pytest

from fakes.run_records import epoch_records, rollout_record
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.facts import Facts
from nat.finetuning.diagnosis.window import Window
from nat.runs.rollouts import LeftOutCause

VARIANCE = {"reward/compared": 200.0, "reward/example_variance": 0.25, "reward/repeats": 100.0}
BY_OUTPUT = VARIANCE | {"reward/repeat_variance": 0.0, "reward/row_repeats": 100.0, "reward/row_repeat_variance": 0.0}
BY_OTHERS = BY_OUTPUT | {"reward/row_repeat_variance": 0.25}
"""Rollouts whose rows are equal differ as much as others."""
BY_CHANCE = BY_OTHERS | {"reward/repeat_variance": 0.25}


def causes(metrics=None, left_out=None, facts=None, **changes) -> dict[str, str]:
    """What is found in a run of four epochs of a hundred rollouts with these numbers, by cause."""
    numbers = {"rollout/calls": 1.0, **(metrics or {})}
    rewards = [changes.pop("avg_reward", 0.5)] * 4
    epochs = epoch_records(rewards, num_rollouts=100, metrics=numbers, left_out=left_out or {}, **changes)
    window = Window(epochs, facts=facts or Facts())
    return {finding.cause: finding.seen for finding in diagnosis_of(window, ended=False).findings}


def test_healthy_rollouts_have_no_cause():
    """Without unusual numbers nothing is found."""
    assert causes(BY_OUTPUT | {"rollout/trained_tokens": 1.0}) == {}


@pytest.mark.parametrize(
    ("name", "cause", "bad", "fine"),
    [
        ("rollouts_failed", LeftOutCause.FAILED, 20, 5),
        ("rollouts_failed", LeftOutCause.NO_SCORE, 20, 5),
        ("calls_lost", LeftOutCause.NO_LOGPROBS, 30, 2),
        ("wrong_target", LeftOutCause.NO_TARGET_FUNCTION, 30, 2),
        ("wrong_target", LeftOutCause.NO_TARGET_MODEL, 30, 2),
        ("sampling_changed", LeftOutCause.UNTRAINABLE_SAMPLING, 30, 2),
        ("stale_rollouts", LeftOutCause.TOO_STALE, 60, 40),
    ],
)
def test_rollouts_that_are_left_out_have_a_cause(name, cause, bad, fine):
    """Beyond the healthy share the cause comes first; within it, nothing is found."""
    assert next(iter(causes(left_out={cause: bad}))) == name
    assert causes(left_out={cause: fine}) == {}


@pytest.mark.parametrize(
    ("name", "bad", "fine"),
    [
        ("calls_lost", {"rollout/without_calls": 0.3}, {"rollout/without_calls": 0.01}),
        ("calls_lost", {"drift/calls_without_logprobs": 30.0}, {"drift/calls_without_logprobs": 1.0}),
        ("sampling_changed", {"drift/untrainable_calls": 30.0}, {"drift/untrainable_calls": 3.0}),
        ("sampling_changed", {"drift/untempered_calls": 30.0}, {"drift/untempered_calls": 3.0}),
        (
            "truncation",
            {"rollout/truncated": 0.3, "reward/truncated_lowest": 0.95},
            {"rollout/truncated": 0.1, "reward/truncated_lowest": 1.0},
        ),
        (
            "truncation",
            {"rollout/truncated": 1.0, "reward/truncated_lowest": 1.0},
            {"rollout/truncated": 1.0, "reward/truncated_lowest": 0.5},
        ),
        (
            "truncation",
            {"rollout/truncated": 0.5, "reward/truncated_lowest": 1.0, "reward/whole_lowest": 0.5},
            {"rollout/truncated": 0.5, "reward/truncated_lowest": 1.0, "reward/whole_lowest": 0.95},
        ),
        ("no_variety", {"rollout/equal_outputs": 0.6}, {"rollout/equal_outputs": 0.4}),
    ],
)
def test_each_number_has_a_healthy_range(name, bad, fine):
    """Beyond the range the cause comes first; within it, nothing is found."""
    assert next(iter(causes(bad))) == name
    assert causes(fine) == {}


def test_answers_to_what_is_always_solved_may_be_the_same():
    """A model that knows the answer need not vary it."""
    assert causes({"rollout/equal_outputs": 0.6}, examples={"a": 1.0, "b": 0.5}) == {}


def test_rollouts_without_any_call_are_lost_and_not_of_another_target():
    """They have no call of the target because no call was seen at all."""
    left_out = {LeftOutCause.NO_TARGET_FUNCTION: 75}
    assert [*causes({"rollout/without_calls": 0.75}, left_out)] == ["calls_lost"]


def test_the_trained_tokens_must_decide_the_score():
    """If equal rows differ in score as much as others, other calls decide it: seen ones of other functions, or lost."""
    assert [*causes(BY_OTHERS | {"rollout/trained_tokens": 0.5})] == ["wrong_target"]
    assert [*causes(BY_OTHERS | {"rollout/trained_tokens": 1.0})] == ["calls_lost"]
    assert [*causes(BY_CHANCE | {"rollout/trained_tokens": 0.5})] == ["independent_score"]


def test_a_target_that_was_not_seen_is_shown_beside_what_was_seen():
    """The two names show a spelling mistake."""
    seen = [rollout_record(str(n), functions={"planner": 1}) for n in range(8)]
    facts = Facts(target_functions=["plannr"], last_rollouts=seen)
    text = causes(left_out={LeftOutCause.NO_TARGET_FUNCTION: 100}, facts=facts)["wrong_target"]
    assert "target_functions: plannr; calls of an epoch: planner (8)" in text


def test_a_target_model_that_was_not_called_is_shown_beside_those_that_were():
    """The finding is about the model, not about functions, and names the closest one."""
    seen = [rollout_record(str(n), models={"student": 1, "tiny": 1}) for n in range(8)]
    facts = Facts(target_model="studnet", last_rollouts=seen)
    text = causes(left_out={LeftOutCause.NO_TARGET_MODEL: 100}, facts=facts)["wrong_target"]
    assert "target_model: studnet; calls of an epoch went to: student (8), tiny (8). Did you mean 'student'?" in text
    assert "target_functions" not in text


@pytest.mark.parametrize(("score", "expected"), [(0.5, "constant_score"), (0.0, "truncation")])
def test_a_score_that_is_always_the_same_does_not_show_that_a_limit_harms(score, expected):
    """The lowest score is then the highest one, too; only that of 0 may be that of cut-off answers."""
    scored = {"min_reward": score, "max_reward": score, "groups_without_difference": 24}
    cut_off = {"rollout/truncated": 1.0, "reward/truncated_lowest": 1.0}
    assert next(iter(causes(cut_off, avg_reward=score, **scored))) == expected


def test_a_noisy_score_hides_that_all_answers_are_cut_off():
    """The noise alone makes the scores differ, so few are the lowest; the limit comes first, since it comes before."""
    cut_off = {"rollout/truncated": 1.0, "reward/truncated_lowest": 0.01}
    assert list(causes(cut_off | BY_CHANCE))[:1] == ["truncation"]
    assert "truncation" not in causes(cut_off | BY_OUTPUT)


@pytest.mark.parametrize(("truncated", "expected"), [(1.0, "truncation"), (0.3, "too_hard")])
def test_cut_off_answers_come_before_scores_that_never_differ(truncated, expected):
    """Where every answer is cut off, every score is 0, and the examples look too hard; where few are, the score is."""
    scored = {"max_reward": 0.0, "groups_without_difference": 24, "examples": {"a": 0.0}}
    found = causes({"rollout/truncated": truncated, "reward/truncated_lowest": 1.0}, **scored)
    assert next(iter(found)) == expected


LOST = {"rollout/calls": 3.0, "rollout/lost_calls_malformed": 10.0, "rollout/lost_calls_cut_off": 100.0}


def test_tool_calls_that_cannot_be_read_are_a_cause():
    """What the token limit cuts off is one cause: truncation, where that explains it."""
    found = causes(LOST)["tool_calls_unread"]
    assert found == "440 of 1200 answers have a tool call that could not be read: cut off 400, malformed 40"
    cut = causes(LOST | {"rollout/truncated": 0.9, "reward/truncated_lowest": 1.0})
    assert "truncation" in cut
    assert "tool_calls_unread" not in cut
    assert causes(LOST | {"rollout/lost_calls_cut_off": 0.0}) == {}


@pytest.mark.parametrize(
    ("lost", "advice", "settings"),
    [
        ({"cut_off": 9, "malformed": 1}, "Raise the LLM's max_tokens. If the model's own format", "{max_tokens: 64}"),
        ({"unknown_tool": 9, "malformed": 1}, "Name the offered tools in the prompt. If the model's own format", ""),
        ({"unclosed": 5, "malformed": 4}, "If the model's own format of calls is another, set `response_template`", ""),
        ({"no_format": 10}, "Take a model whose chat template shows tools and writes calls (`nat fits MODEL`", ""),
    ],
)
def test_the_advice_is_that_of_the_calls_that_were_lost(lost, advice, settings):
    """The most frequent first, each once; only for calls that are cut off there is a setting to paste."""
    metrics = {"rollout/calls": 1.0} | {f"rollout/lost_calls_{cause}": float(count) for cause, count in lost.items()}
    epochs = epoch_records([0.5] * 4, num_rollouts=10, metrics=metrics)
    window = Window(epochs, facts=Facts(words={"MAX_TOKENS": "64"}))
    [finding] = diagnosis_of(window, ended=False).findings
    assert finding.remedy.startswith(advice)
    assert finding.remedy.count("another") <= 1
    assert settings in finding.settings
    assert bool(settings) is bool(finding.settings)


def test_answers_without_a_call_are_not_said_to_have_one():
    """Where no format is known, nobody knows which answers have calls."""
    found = causes(LOST | {"rollout/lost_calls_cut_off": 0.0, "rollout/lost_calls_no_format": 200.0})
    assert found["tool_calls_unread"] == (
        "40 of 1200 answers have a tool call that could not be read: malformed 40; 800 of 1200 answers have no call "
        "that could be read: no format of this model is known"
    )
