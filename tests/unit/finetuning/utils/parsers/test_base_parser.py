import pytest

from fakes.llm_steps import assistant, call, steps, system, user
from nat.finetuning.utils.parsers.base_parser import parse_to_openai_messages

RULES = system("rules")


def test_the_turns_of_a_conversation_are_in_order():
    """Each message occurs once; answers of the model have logprobs, other assistant messages an empty list."""
    first = call([RULES, user("1"), assistant("shown"), user("2")], "a1", logprobs=[-0.5])
    second = call([*first.messages, first.message, user("2")], "a2", logprobs=[-0.25])
    messages = parse_to_openai_messages(steps(first, second))
    said = [(message["role"], message["content"]) for message in messages]
    assert said == [
        ("system", "rules"),
        ("user", "1"),
        ("assistant", "shown"),
        ("user", "2"),
        ("assistant", "a1"),
        ("user", "2"),
        ("assistant", "a2"),
    ]
    assert [message["logprobs"] for message in messages if message["role"] == "assistant"] == [{}, [-0.5], [-0.25]]
    assert all("logprobs" not in message for message in messages if message["role"] != "assistant")


def test_several_conversations_are_an_error():
    """The error names the retry or sub-agent, which cannot be merged into one list."""
    with pytest.raises(ValueError, match=r"2 conversations .*retry"):
        parse_to_openai_messages(steps(call([user("1")], "bad"), call([user("1")], "good")))
