"""The rows of a group in each format."""

import json

import pytest

from fakes.run_records import rollout_record
from fakes.runs_on_disk import thread
from fakes.training_rows import logprobs_of, row_of
from nat.preferences.pairs import PairRule
from nat.runs.rollouts import LeftOutCause
from nat.trajectory_files.formats import FORMATS, RowOptions, rows_of
from nat.trajectory_files.generations import LeftOut, group_of

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
QUESTION = {"role": "user", "content": "2 + 2?"}


def solved(generation, reward, call_id, answer, **changes):
    """A rollout that calls a tool and answers: 3 tokens of prompt, 2 of the call, 1 of its result, 1 of the answer."""
    call = {"id": call_id, "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}
    messages = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "content": "4", "tool_call_id": call_id},
        {"role": "assistant", "content": answer},
    ]
    row = row_of([1, 2, 3, 4, 5, 6, 10 + len(answer)], [None, None, None, -0.5, -0.25, None, -1.0])
    fields = {
        "conversations": [thread(messages, 1, 3, tools=TOOLS)],
        "rows": [row],
    }
    return rollout_record("7", generation, **({"reward": reward} | fields | changes))


def guessed(generation, reward, answer="5"):
    """A rollout that answers at once."""
    return rollout_record(
        "7",
        generation,
        reward=reward,
        conversations=[thread([QUESTION, {"role": "assistant", "content": answer}], 1, tools=TOOLS)],
        rows=[row_of([1, 2, 3, 9], [None, None, None, -2.0])],
    )


def made(records, form, **options):
    """The rows and what is left out, as the export puts them together."""
    group, left_out = group_of("train", 3, "7", records)
    result = rows_of(group, RowOptions(form, **options))
    return result.rows, dict(left_out + result.left_out)


RECORDS = [solved(0, 1.0, "x", "four"), solved(1, 0.5, "y", "five"), guessed(2, 0.0)]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("tokens", [False, True])
def test_rows_of_a_format_have_the_same_columns(form, tokens):
    """Those of all formats among them; token ids only where they are wanted."""
    rows, _ = made(RECORDS, form, tokens=tokens)
    assert rows
    for row in rows:
        assert set(row) == set(rows[0])
        assert any(name.endswith("_ids") for name in row) is tokens
        assert (row["group"], row["example_id"], row["epoch"]) == ("train/3/7", "7", 3)
        assert json.loads(row["tools"]) == TOOLS


def test_grpo_rows():
    """The prompt ends before the first answer; arguments are objects; what was not sampled is masked."""
    rows, left_out = made(RECORDS, "grpo", tokens=True)
    assert left_out == {}
    assert [row["reward"] for row in rows] == [1.0, 0.5, 0.0]
    first = rows[0]
    assert first["prompt"] == [QUESTION]
    assert [message["role"] for message in first["completion"]] == ["assistant", "tool", "assistant"]
    call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
    assert first["completion"][0] == {"role": "assistant", "content": None, "tool_calls": [call]}
    assert (first["prompt_ids"], first["completion_ids"]) == ([1, 2, 3], [4, 5, 6, 14])
    assert (first["env_mask"], first["logprobs"]) == ([1, 1, 0, 1], [-0.5, -0.25, 0.0, -1.0])


def test_pairs_part_at_the_first_different_answer():
    """Each pair has one answer on each side, and the better one's messages before it; ids of calls do not count."""
    rows, left_out = made(RECORDS, "preference", tokens=True)
    assert left_out == {}
    found = [(len(row["prompt"]), row["score_chosen"], row["score_rejected"]) for row in rows]
    assert found == [(1, 1.0, 0.0), (3, 1.0, 0.5), (1, 0.5, 0.0)]
    last = rows[1]
    assert (last["chosen"], last["rejected"]) == (
        [{"role": "assistant", "content": "four"}],
        [{"role": "assistant", "content": "five"}],
    )
    assert last["prompt"][2]["tool_call_id"] == "x"
    ids = (last["prompt_ids"], last["chosen_ids"], last["rejected_ids"])
    assert ids == ([1, 2, 3, 4, 5, 6], [14], [14])
    assert (rows[0]["chosen_ids"], rows[0]["rejected_ids"]) == ([4, 5], [9])
    assert (rows[0]["chosen_logprobs"], rows[0]["rejected_logprobs"]) == ([-0.5, -0.25], [-2.0])


def test_options_of_pairs():
    """A margin, a cap after the pairs without an answer to compare, and best against worst."""
    assert len(made(RECORDS, "preference", pairs=PairRule(margin=0.6))[0]) == 1
    same = [guessed(0, 1.0, "4"), guessed(1, 0.0, "4"), guessed(2, 0.5, "5")]
    rows, left_out = made(same, "preference", pairs=PairRule(most=1))
    assert [(row["score_chosen"], row["score_rejected"]) for row in rows] == [(1.0, 0.5)]
    assert left_out == {LeftOut("pair", "its answers are equal"): 1}
    assert len(made(RECORDS, "preference", pairs=PairRule(which="best_worst"))[0]) == 1
    _, left_out = made(RECORDS[:1], "preference")
    assert left_out == {LeftOut("group", "no two of its rewards differ"): 1}


def test_pairs_that_a_tool_parted_are_left_out():
    """Answers after different results of a tool are answers to different prompts."""
    other = solved(1, 0.0, "y", "five")
    other.messages[2]["content"] = "5"
    _, left_out = made([RECORDS[0], other], "preference")
    assert left_out == {LeftOut("pair", "its prompts differ before its answers do"): 1}
    _, left_out = made([RECORDS[0], solved(1, 0.0, "y", "four")], "preference")
    assert left_out == {LeftOut("pair", "its answers are equal"): 1}


def test_pairs_whose_tokens_part_earlier_are_left_out_with_tokens():
    """Prompt tokens must be those of both answers."""
    row = row_of([1, 2, 3, 4, 8, 6, 7], logprobs_of(RECORDS[1].rows[0]))
    records = [RECORDS[0], solved(1, 0.5, "y", "five", rows=[row])]
    assert len(made(records, "preference")[0]) == 1
    rows, left_out = made(records, "preference", tokens=True)
    assert (rows, left_out) == ([], {LeftOut("pair", "its tokens differ before its messages do"): 1})


def test_kto_labels_each_answer():
    """Above the mean of the group is good, below is bad, and on it neither; each answer is a row."""
    rows, left_out = made(RECORDS, "kto", tokens=True)
    assert [(row["label"], len(row["prompt"])) for row in rows] == [(True, 1), (True, 3), (False, 1)]
    assert [row["completion_ids"] for row in rows] == [[4, 5], [14], [9]]
    assert sum(left_out.values()) == 1
    rows, left_out = made(RECORDS, "kto", min_reward=0.5)
    assert [row["label"] for row in rows] == [True, True, True, True, False]
    assert left_out == {}


def test_messages_of_the_best():
    """The best rollout of the group, or all that are good enough."""
    rows, left_out = made(RECORDS, "messages", tokens=True)
    assert [row["reward"] for row in rows] == [1.0]
    assert len(rows[0]["messages"]) == 4
    assert rows[0]["input_ids"] == RECORDS[0].rows[0].token_ids
    assert rows[0]["assistant_masks"] == [0, 0, 0, 1, 1, 0, 1]
    assert left_out == {LeftOut("rollout", "another one of its group is the best"): 2}
    rows, left_out = made(RECORDS, "messages", min_reward=0.5)
    assert [row["reward"] for row in rows] == [1.0, 0.5]
    assert left_out == {LeftOut("rollout", "its reward is below --min_reward"): 1}


def test_what_could_not_be_trained_on_is_left_out():
    """Failed rollouts are never rows; those that the trainer did not choose are as good as others."""
    records = [
        solved(0, None, "x", "four", left_out=LeftOutCause.FAILED),
        solved(1, 1.0, "x", "four", left_out=LeftOutCause.TOO_STALE),
        solved(2, 1.0, "x", "four", left_out=LeftOutCause.NO_REWARD_DIFFERENCE),
    ]
    rows, left_out = made(records, "grpo")
    assert [row["generation"] for row in rows] == [2]
    assert left_out == {LeftOut("rollout", LeftOutCause.FAILED): 1, LeftOut("rollout", LeftOutCause.TOO_STALE): 1}


def test_messages_that_are_not_text_are_left_out():
    """Parts of text are joined; a conversation with an image is left out."""
    parts = [{"type": "text", "text": "2 + "}, {"type": "text", "text": "2?"}]
    split, image = guessed(0, 1.0), guessed(1, 1.0)
    split.conversations[0].messages[0] = {"role": "user", "content": parts}
    with_image = [*parts, {"type": "image_url", "image_url": {"url": "x"}}]
    image.conversations[0].messages[0] = {"role": "user", "content": with_image}
    rows, left_out = made([split, image], "grpo")
    assert [row["prompt"] for row in rows] == [[QUESTION]]
    assert left_out == {LeftOut("conversation", "it has messages that are not text"): 1}


def test_rows_without_tokens():
    """A conversation whose rows do not match its answers is left out only if tokens are wanted."""
    records = [solved(0, 1.0, "x", "four", rows=[])]
    for form in ("grpo", "messages"):
        assert len(made(records, form)[0]) == 1
        rows, left_out = made(records, form, tokens=True)
        assert (rows, list(left_out.values())) == ([], [1])


def test_arguments_that_are_no_json_stay_text():
    """A model may sample anything."""
    broken = solved(0, 1.0, "x", "four")
    broken.messages[1]["tool_calls"][0]["function"]["arguments"] = '{"a": NaN}'
    rows, _ = made([broken], "grpo")
    assert rows[0]["completion"][0]["tool_calls"][0]["function"]["arguments"] == '{"a": NaN}'
