"""Conversations of one rollout, from random trees of calls too, and why each of them began."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.llm_steps import assistant, call, steps, system, user
from nat.data_models.finetuning import Trajectory, TrajectoryCollection
from nat.finetuning.trajectories.calls import calls_of
from nat.finetuning.trajectories.episodes import episode
from nat.finetuning.trajectories.messages import ConversationGraph, conversations, essence
from nat.finetuning.trajectories.rows import broken_by, training_groups
from nat.runs.rollouts import Beginning

RULES = system("rules")
ROLES = {"system": 1, "user": 2, "assistant": 3, "tool": 4}


def ids_of(messages):
    """A chat template: the role, then the letters."""
    return [token for m in messages for token in (ROLES[m["role"]], *map(ord, m["content"]))]


def asked(messages, answer, *, exact=True, **fields):
    """A call with the tokens of the template above, which ends each prompt with the role of the answer."""
    ids = ([*ids_of(messages), ROLES["assistant"]], list(map(ord, answer))) if exact else (None, None)
    return call(messages, answer, ids=ids, **fields)


def threads_of(*calls):
    return conversations(calls_of(steps(*calls)))


def beginnings(*calls):
    return [(thread.began, thread.parent, thread.shared) for thread in threads_of(*calls)]


moves = st.lists(st.tuples(st.integers(-2, 11), st.sampled_from("xy")), min_size=1, max_size=12)
"""For each call: which earlier one it goes on from (a new opening if there is none), and what is said."""


def tree(plan, *, exact, answer):
    """Calls in an order in which each comes after the one that it goes on from, and that one's number."""
    made, parents = [], []
    for number, (wish, text) in enumerate(plan):
        parent = wish if 0 <= wish < number else None
        before = [RULES] if parent is None else [*made[parent].messages, made[parent].message]
        made.append(asked([*before, user(text)], answer(number), exact=exact))
        parents.append(parent)
    return made, parents


@given(moves, st.booleans(), st.booleans())
def test_every_call_is_in_one_conversation_and_each_conversation_is_a_chain(plan, exact, alike):
    """Nothing is dropped that was repeated, nothing is fused that was apart, with the same answers again and again."""
    made, _ = tree(plan, exact=exact, answer=lambda number: "a" if alike else f"a{number}")
    seen = calls_of(steps(*made))
    threads = conversations(seen)
    assert sorted(s.at for thread in threads for s in thread.sampled.values()) == [s.at for s in seen]
    for thread in threads:
        for position, said in thread.sampled.items():
            assert thread.messages[:position] == said.call.messages
            assert thread.messages[position] == said.call.message


@given(moves, st.booleans(), st.randoms())
def test_there_are_as_many_conversations_as_leaves(plan, exact, random):
    """Whichever of two branches is first goes on; a fork begins one. The order of parallel branches changes nothing."""
    made, parents = tree(plan, exact=exact, answer=lambda number: f"a{number}")
    leaves = len(made) - len({parent for parent in parents if parent is not None})
    assert len(threads_of(*made)) == leaves
    assert len(threads_of(*interleaved(made, parents, random))) == leaves


def interleaved(made, parents, random: Random):
    """The same calls in another order in which each comes after its own past."""
    waiting, done, order = list(range(len(made))), set(), []
    while waiting:
        ready = [n for n in waiting if parents[n] is None or parents[n] in done]
        chosen = random.choice(ready)
        waiting.remove(chosen)
        done.add(chosen)
        order.append(made[chosen])
    return order


@given(moves, st.booleans())
def test_a_conversation_is_a_row(plan, alike):
    """With exact tokens both are the same thing, for the journal and for the backend."""
    made, _ = tree(plan, exact=True, answer=lambda number: "a" if alike else f"a{number}")
    graph = ConversationGraph(calls_of(steps(*made)))
    threads, rows = graph.conversations, [merged.row for merged in graph.rows]
    assert [row.token_ids for row in rows] == [whole(thread) for thread in threads]
    trajectory = Trajectory(episode=episode(threads), reward=1.0)
    (group,) = training_groups(TrajectoryCollection(trajectories=[[trajectory]], run_id="r"))
    assert sorted(row.token_ids for row in group.rollouts[0].rows) == sorted(row.token_ids for row in rows)


def whole(thread):
    """All tokens of a conversation: the last prompt and its answer."""
    last = max(thread.sampled.items())[1].call
    return [*last.prompt_token_ids, *last.token_ids]


@pytest.mark.parametrize("exact", [True, False])
def test_why_a_conversation_began(exact):
    """First, retry, fork, another prompt under the same rules, and a sub-agent with rules of its own."""
    opening = [RULES, user("1")]
    first = asked(opening, "a", exact=exact)
    retry = asked(opening, "b", exact=exact)
    second = asked([*opening, assistant("a"), user("2")], "c", exact=exact)
    fork = asked([*opening, assistant("a"), user("3")], "d", exact=exact)
    other = asked([RULES, user("else")], "e", exact=exact)
    agent = asked([system("a sub-agent"), user("1")], "f", exact=exact)
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
def test_a_rewritten_history_says_so(history, shared):
    """An answer was changed, or what was said before it; the parent is whom it still begins like."""
    found = beginnings(asked([user("1")], "long"), asked(history, "x"))
    assert found[1] == (Beginning.REWRITTEN, 0 if shared else None, shared)


def test_a_tool_result_in_other_words_is_a_fork_and_a_rewritten_one_is_rewritten():
    """Nothing says whether another result is a second try or a correction, until the answer to it is repeated."""
    said = assistant("use the tool")
    first, result = [user("1")], {"role": "tool", "tool_call_id": "c", "content": "4"}
    told = [*first, said, result]
    calls = [asked(first, "use the tool"), asked(told, "four"), asked([*first, said, result | {"content": "5"}], "x")]
    assert beginnings(*calls)[1:] == [(Beginning.FORK, 0, 2)]
    later = asked([*first, said, result | {"content": "4.0"}, assistant("four"), user("2")], "y")
    assert beginnings(*calls[:2], later)[1:] == [(Beginning.REWRITTEN, 0, 2)]


def test_tokens_tell_equal_answers_apart():
    """Two retries said the same text in other tokens; the prompt that goes on shows which of them it is."""
    one = call([user("1")], "ab", ids=([1], [5, 6]))
    two = call([user("1")], "ab", ids=([1], [7]))
    on = call([user("1"), assistant("ab"), user("2")], "c", ids=([1, 7, 2], [8]))
    first, second = threads_of(one, two, on)
    assert ([s.call for s in first.sampled.values()], [s.call for s in second.sampled.values()]) == ([one], [two, on])


def test_tokens_tell_that_a_conversation_goes_on_in_other_words():
    """A framework writes the arguments of a tool call down again; the template shows the model the same tokens."""
    said = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    again = said | {"id": "d", "function": {"name": "add", "arguments": '{"a":1}'}}
    first = call([user("1")], assistant("", tool_calls=[said]), ids=([1], [2]))
    second = call([user("1"), assistant("", tool_calls=[again]), user("2")], "x", ids=([1, 2, 3], [4]))
    (thread,) = threads_of(first, second)
    assert thread.messages[1]["tool_calls"] == [said]
    assert [s.call for s in thread.sampled.values()] == [first, second]


def test_other_tokens_begin_a_conversation_that_knows_where_it_comes_from():
    """A template that renders history in another way breaks the row; the earlier answer becomes context."""
    first = call([user("1")], "a", ids=([1], [2]))
    second = call([user("1"), assistant("a"), user("2")], "b", ids=([1, 9, 3], [4]))
    threads = threads_of(first, second)
    assert [(t.began, t.parent, t.shared) for t in threads[1:]] == [(Beginning.RETOKENIZED, 0, 2)]
    assert list(threads[1].sampled) == [3]
    assert sum(broken_by(threads).values()) == 1


def test_without_tokens_messages_decide_even_after_a_call_with_some():
    """A server may stop telling ids; the conversation still goes on."""
    first = asked([user("1")], "a")
    second = asked([user("1"), assistant("a"), user("2")], "b", exact=False)
    third = asked([user("1"), assistant("a"), user("2"), assistant("b"), user("3")], "c")
    assert len(threads_of(first, second, third)) == 1


def test_models_never_share_a_conversation():
    """What another model said is context, in the conversation of the one that goes on from it."""
    mine = asked([user("1")], "a")
    theirs = asked([user("1"), assistant("a")], "b", llm_name="judge")
    mine_again = asked([user("1"), assistant("a"), assistant("b"), user("2")], "c")
    threads = threads_of(mine, theirs, mine_again)
    assert [(t.began, list(t.sampled)) for t in threads] == [(Beginning.FIRST, [1, 4]), (Beginning.OTHER_MODEL, [2])]


def test_text_in_parts_is_the_text():
    """Frameworks send a string as one part; an image is no text."""
    parts = {"role": "user", "content": [{"type": "text", "text": "1"}]}
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    first = asked([user("1")], "a", exact=False)
    assert len(threads_of(first, asked([parts, assistant("a"), user("2")], "b", exact=False))) == 1
    assert len(threads_of(first, asked([picture, assistant("a"), user("2")], "b", exact=False))) == 2


def test_calls_whose_prompt_is_unknown_stay_apart():
    """A workflow may push LLM steps of its own that do not say what was asked."""
    assert [began for began, _, _ in beginnings(call([], "a"), call([], "b"))] == [Beginning.FIRST, Beginning.RETRY]


def test_a_conversation_tells_its_record():
    """Its beginning, how long it is and how many answers in it were sampled."""
    record = threads_of(asked([user("1")], "a"), asked([user("1")], "b"))[1].record
    assert record.model_dump(mode="json") == {"began": "retry", "parent": 0, "shared": 1, "messages": 2, "calls": 1}


def contents(*calls):
    return [[m["content"] for m in t.messages] for t in conversations(calls_of(steps(*calls)))]


def test_turns_of_one_conversation_become_one():
    """Each call that repeats all messages and the last answer goes on with the conversation."""
    first = call([RULES, user("1")], "a1")
    second = call([RULES, user("1"), assistant("a1"), user("2")], "a2")
    assert contents(first, second) == [["rules", "1", "a1", "2", "a2"]]


def test_the_same_user_text_twice_is_kept_twice():
    """Messages are compared by place, never de-duplicated: "yes" may be said twice."""
    first = call([user("yes")], "sure?")
    second = call([user("yes"), assistant("sure?"), user("yes")], "done")
    assert contents(first, second) == [["yes", "sure?", "yes", "done"]]


def test_a_retry_with_the_same_prompt_is_another_conversation():
    """The second answer to one prompt does not follow the first answer."""
    assert contents(call([user("1")], "bad"), call([user("1")], "good")) == [["1", "bad"], ["1", "good"]]


def test_parallel_agents_are_told_apart():
    """Interleaved calls with different system prompts each continue their own conversation."""
    a1, b1 = call([system("A"), user("x")], "a1"), call([system("B"), user("x")], "b1")
    a2 = call([system("A"), user("x"), assistant("a1"), user("y")], "a2")
    b2 = call([system("B"), user("x"), assistant("b1"), user("y")], "b2")
    assert contents(a1, b1, a2, b2) == [["A", "x", "a1", "y", "a2"], ["B", "x", "b1", "y", "b2"]]


def test_a_rewritten_history_begins_anew():
    """Once the agent changed what was said, the old conversation is over."""
    first = call([user("1")], "long thought: 5")
    second = call([user("1"), assistant("5"), user("2")], "6")
    assert contents(first, second) == [["1", "long thought: 5"], ["1", "5", "2", "6"]]


def test_arguments_that_cannot_be_read_are_text():
    """A model may sample any depth and any number as the arguments of a call."""
    for arguments in ("[" * 100_000, '{"a": 1' + "0" * 5000 + "}"):
        message = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": arguments}}]}
        assert arguments in str(essence(message))


def test_empty_fields_do_not_make_messages_different():
    """SDKs send an answer back with or without its empty fields; contents and tool calls decide."""
    echo = {"role": "assistant", "content": None, "refusal": None, "tool_calls": None}
    assert essence({"role": "assistant", "content": ""}) == essence(echo)
    tool = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": ""}}]}
    assert essence(tool) != essence(echo)
