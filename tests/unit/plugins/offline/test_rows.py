"""Rows of training files in TRL's dataset formats."""

import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nat.finetuning.trajectories.rows import TextTrajectory
from nat.plugins.offline.builder import read_examples
from nat.plugins.offline.rows import kind_of, trajectory_of

USER, ANSWER = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}
RESULT = {"role": "tool", "content": "4"}
DEMONSTRATIONS = "demonstrations"
TOOLS = [{"type": "function", "function": {"name": "add"}}]


@pytest.mark.parametrize(
    ("row", "messages", "answers", "kind"),
    [
        ({"messages": [USER, CALL, RESULT, ANSWER]}, [USER, CALL, RESULT, ANSWER], [1, 3], DEMONSTRATIONS),
        ({"prompt": "2+2?", "completion": "4"}, [USER, ANSWER], [1], DEMONSTRATIONS),
        (
            {"prompt": [USER], "completion": [CALL, RESULT, ANSWER]},
            [USER, CALL, RESULT, ANSWER],
            [1, 3],
            "demonstrations",
        ),
        ({"prompt": [USER, ANSWER, USER], "completion": "4"}, [USER, ANSWER, USER, ANSWER], [3], DEMONSTRATIONS),
        ({"prompt": "2+2?", "completion": "4", "label": True}, [USER, ANSWER], [1], "labels"),
        ({"prompt": "2+2?", "completion": "4", "reward": 0.25}, [USER, ANSWER], [1], "rewards"),
    ],
)
def test_a_text_has_its_messages_and_answers(row, messages, answers, kind):
    """Answers to learn from are those of the completion, or all of a whole conversation."""
    found = trajectory_of(row, "7")
    assert isinstance(found, TextTrajectory)
    [text] = found.texts
    without_nulls = [{key: value for key, value in message.items() if value is not None} for message in messages]
    assert (text.conversation.messages, text.conversation.answers) == (without_nulls, answers)
    assert found.metadata["id"] == "7"
    assert kind_of(found) == kind
    assert found.reward == text.reward == row.get("reward", row.get("label", 1.0))
    assert text.desirable == row.get("label")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2+2?", "chosen": "4", "rejected": "5"},
        {"prompt": [USER], "chosen": [ANSWER], "rejected": [{"role": "assistant", "content": "5"}]},
        {"chosen": [USER, ANSWER], "rejected": [USER, {"role": "assistant", "content": "5"}]},
    ],
)
def test_a_pair_has_one_prompt(row):
    """With a prompt of its own, or the messages with which both begin."""
    found = trajectory_of(row, "7")
    [item] = found.episode
    assert ([message.content for message in item.prompt], item.chosen_response) == (["2+2?"], "4")
    assert item.rejected_response == "5"
    assert [text.reward for text in found.texts] == [1.0, 0.0]
    assert found.texts[0].conversation.messages == [USER, ANSWER]
    assert kind_of(found) == "pairs"


def test_tools_may_be_json():
    """A table has one type for each column, so TRL's files have the tools as text."""
    for tools in (TOOLS, json.dumps(TOOLS)):
        assert trajectory_of({"messages": [USER, CALL], "tools": tools}, "1").texts[0].conversation.tools == TOOLS


def called(name, arguments):
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}


@pytest.mark.parametrize("columns", [["messages"], ["prompt", "completion"], ["prompt", "chosen", "rejected"]])
def test_padding_of_a_table_is_not_taught(tmp_path, columns):
    """Parquet gives each call and each schema the keys of all others, as null; those of JSON text stay."""
    add, look = called("add", {"a": 1, "b": 4}), called("look", {"q": "rain"})
    schemas = {"add": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "look": {"q": {"type": "string"}}}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"properties": own}}}
        for name, own in schemas.items()
    ]
    rows = [
        [[USER, one]] if len(columns) == 1 else [[USER], [one], [other]] for one, other in ((add, look), (look, add))
    ]
    table = [dict(zip(columns, row, strict=False)) | {"tools": tools} for row in rows]
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "rows.parquet")
    read = [group[0].texts[0].conversation for group in read_examples(tmp_path / "rows.parquet").values()]
    assert [each.messages[1]["tool_calls"] for each in read] == [add["tool_calls"], look["tool_calls"]]
    assert [each.tools for each in read] == [tools, tools]
    kept = called("look", '{"q": null}')
    [text] = trajectory_of({"messages": [USER, kept]}, "1").texts
    assert text.conversation.messages[1]["tool_calls"] == kept["tool_calls"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "the columns of an empty row are none of the formats"),
        ({"prompt": 3, "completion": "4"}, "prompt: a int where a text or a list of messages was expected"),
        ({"prompt": [], "completion": "4"}, "prompt: it is empty"),
        ({"prompt": "a", "completion": [USER]}, "completion: no message is an answer of the assistant"),
        ({"prompt": "a", "completion": "b", "reward": "c"}, "reward"),
        *[
            ({"prompt": "a", "completion": "b", "reward": number}, "reward")
            for number in (math.nan, math.inf, 1e300, -1e300, 10**400)
        ],
        ({"prompt": "a", "completion": "b", "label": [1]}, "label"),
        ({"prompt": "a", "completion": "b", "label": math.nan}, "label"),
        ({"chosen": "a", "rejected": "b"}, "prompt: it is empty"),
    ],
)
def test_a_row_of_no_format_says_what_it_has(row, message):
    """The column, what it has, and what was wanted."""
    with pytest.raises(ValueError, match=message):
        trajectory_of(row, "1")


def test_answers_with_rewards_are_grouped_by_their_prompt(tmp_path):
    """Only answers to the same prompt can be compared; every other row is an example of its own."""
    path = tmp_path / "rows.jsonl"
    rows = [{"prompt": prompt, "completion": "c", "reward": 1} for prompt in ("a", "b", "a")]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert [len(group) for group in read_examples(path).values()] == [2, 1]
    path.write_text("\n".join(json.dumps({"prompt": "a", "completion": "c"}) for _ in range(3)))
    assert len(read_examples(path)) == 3
