"""Rollouts are chosen, and shown as conversations."""

import json

import pytest

from fakes.run_records import rollout_record
from fakes.runs_on_disk import EVIL, conversation, make_run, thread, training_rollouts
from nat.errors import JournalError
from nat.reports.conversation import rollout_text
from nat.reports.rollouts import (
    PlayedRollouts,
    RolloutChoice,
    check_played,
    chosen,
    rollouts_page,
    rollouts_record,
)
from nat.runs.journal import reading
from nat.runs.records import Phase
from nat.runs.rollouts import Answer, Beginning, Outcome

RECORDS = training_rollouts()


def outcomes(records):
    return [Outcome(each.example_id, each.generation, each.reward, each.left_out) for each in records]


def ids(choice):
    return [(each.example_id, each.generation) for each in chosen(outcomes(RECORDS), choice)]


def test_worst_and_best_are_by_reward():
    """What has no reward is neither; it is asked for as failed."""
    assert ids(RolloutChoice(worst=2)) == [("a", 1), ("b", 0)]
    assert ids(RolloutChoice(best=2)) == [("a", 0), ("d", 0)]
    assert ids(RolloutChoice(failed=9)) == [("c", 0)]
    assert ids(RolloutChoice(examples=("a",))) == [("a", 0), ("a", 1)]


def test_equal_rewards_show_many_examples():
    """Of equal rewards the first generation of each example comes first."""
    records = [rollout_record(name, generation) for name in "xy" for generation in range(3)]
    assert [r.example_id for r in chosen(outcomes(records), RolloutChoice(worst=2))] == ["x", "y"]


def test_an_unknown_example_lists_the_known():
    """With the one that was probably meant."""
    records = [rollout_record(f"row-{n}") for n in range(12)]
    with pytest.raises(
        JournalError, match=r"no rollout of example 'row_3' there; .* and 2 more\. Did you mean 'row-3'\?"
    ):
        chosen(outcomes(records), RolloutChoice(examples=("row_3",)))


def test_an_epoch_that_was_not_played_lists_those_that_were(tmp_path):
    """Epochs are counted from 1, as in the progress."""
    with reading(make_run(tmp_path, "run-1", solved=(2, 6))) as journal:
        check_played(journal, Phase.TRAIN, 0)
        with pytest.raises(
            JournalError,
            match="no rollouts of epoch 3; it has epochs 1 to 1 and held-out examples before training, after epoch 1",
        ):
            check_played(journal, Phase.TRAIN, 2)


def test_a_conversation_reads_from_top_to_bottom():
    """Roles, tool calls with arguments and results, what was trained, output and reasoning; text stands behind bars."""
    text = rollout_text(RECORDS[4], Phase.TRAIN).replace("\\x1b[2J\\x1b]0;owned\\x07\\u202eevil\\x9b31m\\r", "")
    assert text == (
        "── example d, generation 0: reward 0.750; trained on 4 sampled tokens in 1 row\n"
        "system\n│ Use the tools.\n"
        "user\n│ Weather in Rome?\n"
        'assistant  [trained, 1 tokens]\n  calls weather c1\n│ {"city": "Rome"}\n'
        "tool c1\n│ 21 degrees\n"
        "assistant  [trained, 3 tokens]\n│ It is mild."
    )


@pytest.mark.parametrize(
    ("record", "phase", "heading"),
    [
        (RECORDS[2], Phase.TRAIN, "reward 0.500; left out of training: its group has no difference in reward"),
        (RECORDS[3], Phase.TRAIN, "no reward; left out of training: the workflow raised an error"),
        (RECORDS[3], Phase.VALIDATION, "no reward: the workflow raised an error"),
        (RECORDS[0], Phase.VALIDATION, "reward 1.000; held out, so not trained on"),
    ],
)
def test_the_reason_where_nothing_was_trained(record, phase, heading):
    """A left-out rollout says why; its answers are sampled, not trained."""
    text = rollout_text(record, phase)
    assert heading in text.splitlines()[0]
    assert "[trained" not in text
    assert (record.error or "") in text


def test_a_hostile_model_cannot_control_the_terminal():
    """Control characters anywhere in a rollout are shown as escapes, and no line of a model looks like the page's."""
    hostile = conversation(
        f"id{EVIL}",
        0.5,
        question=f"q{EVIL}\n── example fake, generation 0: reward 1.000",
        answer=f"a{EVIL}",
        error=f"e{EVIL}",
        reasoning={EVIL: EVIL},
    )
    messages = [*hostile.messages, {"role": EVIL, "name": EVIL, "content": [EVIL]}]
    hostile = hostile.model_copy(update={"conversations": [thread(messages, 1)]})
    shown = PlayedRollouts("run-1", Phase.TRAIN, 0, outcomes([hostile]), [hostile])
    for whole in (False, True):
        page = rollouts_page(shown, whole=whole, row_text=lambda _: EVIL)
        assert not [char for char in page if char in "\x1b\x07\u202e\x9b\r"]
        assert sum(line.startswith("── example") for line in page.splitlines()) == (1 if whole else 0)
    text = json.dumps(rollouts_record(shown))
    assert text.isascii()
    assert json.loads(text)["rollouts"][0]["output"] == f"a{EVIL}"


def test_a_fork_repeats_no_message():
    """A conversation that shares its beginning with another one says so and shows the rest."""
    first = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "one"}]
    second = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "two"}]
    record = rollout_record(
        conversations=[
            thread(first, answers=[Answer(message=1)]),
            thread(second, answers=[Answer(message=1)], began=Beginning.RETRY, parent=0, shared=1),
        ],
    )
    text = rollout_text(record, Phase.TRAIN)
    assert text.count("hello") == 1
    assert "conversation 2 of 2 (retry; its first 1 messages are those of conversation 1)" in text


def test_answers_that_the_agent_wrote_are_not_marked():
    """Examples in the prompt have the assistant's role, but nobody sampled them."""
    record = conversation("a", 1.0)
    shots = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]
    record = record.model_copy(update={"conversations": [thread([*shots, *record.messages], 3)]})
    assert rollout_text(record, Phase.TRAIN).count("[trained, 2 tokens]") == 1
    assert "assistant\n│ 2\n" in rollout_text(record, Phase.TRAIN)


def test_without_a_wish_every_rollout_has_a_line():
    """With its reward, its trained tokens, and why it was left out."""
    page = rollouts_page(PlayedRollouts("run-1", Phase.TRAIN, 0, outcomes(RECORDS), RECORDS), whole=False)
    assert page.splitlines()[0] == (
        "run run-1, epoch 1: 5 rollouts, mean reward 0.625, 1 without a reward (--failed 1 shows them)"
    )
    assert [line.split()[0] for line in page.splitlines()[3:]] == ["a", "a", "b", "c", "d"]
    assert "the workflow raised an error" in page


@pytest.mark.parametrize("calls", [5, "x", {"a": 1}, [None]])
def test_tool_calls_of_another_shape_are_shown_as_they_are(calls):
    """An agent may send anything; the page shows it."""
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": calls}]
    whole = conversation("a", 1.0, conversations=[thread(messages, 1)])
    shown = calls[0] if isinstance(calls, list) else calls
    assert f"│ {json.dumps(shown)}" in rollout_text(whole, Phase.TRAIN)
