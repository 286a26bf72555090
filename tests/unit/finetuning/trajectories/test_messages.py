from fakes.llm_steps import assistant, call, steps, system, user
from nat.finetuning.trajectories.calls import calls_of
from nat.finetuning.trajectories.messages import conversations
from nat.finetuning.trajectories.wording import essence

RULES = system("rules")


def threads(*calls):
    return [[m["content"] for m in t.messages] for t in conversations(calls_of(steps(*calls)))]


def test_turns_of_one_conversation_become_one():
    """Each call that repeats all messages and the last answer goes on with the conversation."""
    first = call([RULES, user("1")], "a1")
    second = call([RULES, user("1"), assistant("a1"), user("2")], "a2")
    assert threads(first, second) == [["rules", "1", "a1", "2", "a2"]]


def test_the_same_user_text_twice_is_kept_twice():
    """Messages are compared by place, never de-duplicated: "yes" may be said twice."""
    first = call([user("yes")], "sure?")
    second = call([user("yes"), assistant("sure?"), user("yes")], "done")
    assert threads(first, second) == [["yes", "sure?", "yes", "done"]]


def test_a_retry_with_the_same_prompt_is_another_conversation():
    """The second answer to one prompt does not follow the first answer."""
    assert threads(call([user("1")], "bad"), call([user("1")], "good")) == [["1", "bad"], ["1", "good"]]


def test_parallel_agents_are_told_apart():
    """Interleaved calls with different system prompts each continue their own conversation."""
    a1, b1 = call([system("A"), user("x")], "a1"), call([system("B"), user("x")], "b1")
    a2 = call([system("A"), user("x"), assistant("a1"), user("y")], "a2")
    b2 = call([system("B"), user("x"), assistant("b1"), user("y")], "b2")
    assert threads(a1, b1, a2, b2) == [["A", "x", "a1", "y", "a2"], ["B", "x", "b1", "y", "b2"]]


def test_a_rewritten_history_begins_anew():
    """Once the agent changed what was said, the old conversation is over."""
    first = call([user("1")], "long thought: 5")
    second = call([user("1"), assistant("5"), user("2")], "6")
    assert threads(first, second) == [["1", "long thought: 5"], ["1", "5", "2", "6"]]


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
