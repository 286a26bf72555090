"""The tiny model of new projects reads the conversations of every framework alike."""

import random

import pytest

from nat.backend.calculator import Tools, calculator_tokenizer, call, conversation
from nat.backend.tokenizer import ChatTokenizer

ASKED = {"role": "user", "content": "What is 7 + 5?"}
CALLED = {"id": "call_12", "type": "function", "function": {"name": "add", "arguments": {"a": 7, "b": 5}}}
CONVERSATIONS = {
    "OpenAI": [{"role": "assistant", "content": None, "tool_calls": [CALLED]}, {"role": "tool", "content": "12"}],
    "CrewAI": [
        {"role": "assistant", "content": "", "tool_calls": [CALLED]},
        {"role": "tool", "content": "12"},
        {"role": "user", "content": "Analyze the tool result, and answer."},
    ],
    "smolagents": [
        {"role": "assistant", "content": f"Calling tools:\n{[CALLED]}"},
        {"role": "user", "content": "Observation:\n12"},
    ],
}


@pytest.mark.parametrize("framework", CONVERSATIONS)
def test_each_framework_renders_to_the_tokens_that_were_sampled(framework):
    """What a framework adds or writes anew changes no token, so a rollout stays one row."""
    tokenizer = calculator_tokenizer(Tools("add", None))
    messages = [{"role": "system", "content": "Use 2 tools."}, ASKED, *CONVERSATIONS[framework]]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    said = "<|unknown|> " * (framework == "CrewAI")
    wanted = f"<|user|> 7 + 5 <|assistant|> {call('add', a=7, b=5)} <|end|> <|tool|> 12 {said}<|assistant|>"
    assert tokenizer.tokenize(text) == ["<|unknown|>", *wanted.split()]


def test_every_role_is_rendered():
    """A newcomer who edits the agent's instruction finds it in the prompt."""
    tokenizer = ChatTokenizer(calculator_tokenizer(Tools("add", None)))
    system = {"role": "system", "content": "Use your tools."}
    for messages in CONVERSATIONS.values():
        tokenizer.render_text([system, ASKED, *messages, {"role": "user", "content": "Sure?"}, system])
    assert tokenizer.lost == set()


@pytest.mark.slow
def test_about_a_third_of_what_it_is_taught_is_right():
    """Reinforcement learning starts from some right answers, and leaves something to learn."""
    rng, right = random.Random(0), 0
    for _ in range(1000):
        a, b, *said = [word for word in conversation(rng, Tools("add", None)).split() if word.isdigit()]
        right += len(said) == 4 and said[:2] == [a, b] and said[2] == said[3]
    assert 300 < right < 500
