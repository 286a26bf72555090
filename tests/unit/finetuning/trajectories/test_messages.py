"""The conversations of a rollout, also from random trees of calls, and why each of them began."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.llm_steps import assistant, call, steps, system, user
from nat.data_models.finetuning import Trajectory, TrajectoryCollection
from nat.finetuning.trajectories.calls import calls_of
from nat.finetuning.trajectories.episodes import episode
from nat.finetuning.trajectories.messages import conversations, conversations_and_rows, essence
from nat.finetuning.trajectories.rows import training_groups
from nat.runs.rollouts import Beginning

RULES = system("rules")
ROLES = {"system": 1, "user": 2, "assistant": 3, "tool": 4}


def ids_of(messages):
    """A chat template: the role, then one id per letter."""
    return [token for m in messages for token in (ROLES[m["role"]], *map(ord, m["content"]))]


def recorded(messages, answer, *, exact=True, **fields):
    """A call with the tokens of the template above, whose prompt ends with the answer's role."""
    ids = ([*ids_of(messages), ROLES["assistant"]], list(map(ord, answer))) if exact else (None, None)
    return call(messages, answer, ids=ids, **fields)


def threads_of(*calls):
    return conversations(calls_of(steps(*calls)))


def beginnings(*calls):
    return [(thread.began, thread.parent, thread.shared) for thread in threads_of(*calls)]


moves = st.lists(st.tuples(st.integers(-2, 11), st.sampled_from("xy")), min_size=1, max_size=12)
"""For each call: the earlier call that it continues (or none), and its text."""


def tree(plan, *, exact, answer):
    """Calls in an order in which each follows the one that it continues, with that one's number."""
    made, parents = [], []
    for number, (earlier, text) in enumerate(plan):
        parent = earlier if 0 <= earlier < number else None
        before = [RULES] if parent is None else [*made[parent].messages, made[parent].message]
        made.append(recorded([*before, user(text)], answer(number), exact=exact))
        parents.append(parent)
    return made, parents


@given(moves, st.booleans())
def test_a_conversation_is_a_row(plan, alike):
    """With exact tokens, a conversation is a row in the journal and for the backend."""
    made, _ = tree(plan, exact=True, answer=lambda number: "a" if alike else f"a{number}")
    threads, rows = conversations_and_rows(calls_of(steps(*made)))
    assert [row.token_ids for row in rows] == [whole(thread) for thread in threads]
    trajectory = Trajectory(episode=episode(threads), reward=1.0)
    (group,) = training_groups(TrajectoryCollection(trajectories=[[trajectory]], run_id="r"))
    assert sorted(row.token_ids for row in group.rollouts[0].rows) == sorted(row.token_ids for row in rows)


def whole(thread):
    """All tokens of a conversation: the last prompt with its answer."""
    last = max(thread.sampled.items())[1].call
    return [*last.prompt_token_ids, *last.token_ids]


@pytest.mark.parametrize("exact", [True, False])
def test_each_conversation_has_the_reason_of_its_beginning(exact):
    """The reasons are first, retry, fork, another prompt with the same system prompt, and a sub-agent."""
    opening = [RULES, user("1")]
    first = recorded(opening, "a", exact=exact)
    retry = recorded(opening, "b", exact=exact)
    second = recorded([*opening, assistant("a"), user("2")], "c", exact=exact)
    fork = recorded([*opening, assistant("a"), user("3")], "d", exact=exact)
    other = recorded([RULES, user("else")], "e", exact=exact)
    agent = recorded([system("a sub-agent"), user("1")], "f", exact=exact)
    assert beginnings(first, retry, second, fork, other, agent) == [
        (Beginning.FIRST, None, 0),
        (Beginning.RETRY, 0, 2),
        (Beginning.FORK, 0, 3),
        (Beginning.OTHER_PROMPT, 0, 1),
        (Beginning.OTHER_SYSTEM_PROMPT, None, 0),
    ]


@pytest.mark.parametrize(
    ("history", "shared"),
    [
        ([user("1"), assistant("short"), user("2")], 1),
        ([user("one"), assistant("long"), user("2")], 0),
        ([RULES, user("1"), assistant("long"), user("2")], 0),
    ],
)
def test_a_rewritten_history_has_its_parent(history, shared):
    """If an answer or an earlier message was changed, the parent is the conversation with the longest common start."""
    found = beginnings(recorded([user("1")], "long"), recorded(history, "x"))
    assert found[1] == (Beginning.REWRITTEN, 0 if shared else None, shared)


def test_another_tool_result_is_a_fork_until_its_answer_is_repeated():
    """Only a repeated answer shows that the other result is a correction and not a second try."""
    said = assistant("use the tool")
    first, result = [user("1")], {"role": "tool", "tool_call_id": "c", "content": "4"}
    told = [*first, said, result]
    calls = [
        recorded(first, "use the tool"),
        recorded(told, "four"),
        recorded([*first, said, result | {"content": "5"}], "x"),
    ]
    assert beginnings(*calls)[1:] == [(Beginning.FORK, 0, 2)]
    later = recorded([*first, said, result | {"content": "4.0"}, assistant("four"), user("2")], "y")
    assert beginnings(*calls[:2], later)[1:] == [(Beginning.REWRITTEN, 0, 2)]


def test_equal_tokens_continue_a_conversation_with_other_text():
    """A framework may serialise the arguments of a call again; the template gives the same tokens."""
    said = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    again = said | {"id": "d", "function": {"name": "add", "arguments": '{"a":1}'}}
    first = call([user("1")], assistant("", tool_calls=[said]), ids=([1], [2]))
    second = call([user("1"), assistant("", tool_calls=[again]), user("2")], "x", ids=([1, 2, 3], [4]))
    (thread,) = threads_of(first, second)
    assert thread.messages[1]["tool_calls"] == [said]
    assert [s.call for s in thread.sampled.values()] == [first, second]


def test_models_never_share_a_conversation():
    """What another model wrote is context in the conversation that continues from it."""
    mine = recorded([user("1")], "a")
    theirs = recorded([user("1"), assistant("a")], "b", llm_name="judge")
    mine_again = recorded([user("1"), assistant("a"), assistant("b"), user("2")], "c")
    threads = threads_of(mine, theirs, mine_again)
    assert [(t.began, list(t.sampled)) for t in threads] == [(Beginning.FIRST, [1, 4]), (Beginning.OTHER_MODEL, [2])]


def test_empty_fields_do_not_make_messages_different():
    """SDKs send answers back with or without empty fields; contents and tool calls decide."""
    echo = {"role": "assistant", "content": None, "refusal": None, "tool_calls": None}
    assert essence({"role": "assistant", "content": ""}) == essence(echo)
    tool = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": ""}}]}
    assert essence(tool) != essence(echo)
