from hypothesis import given
from hypothesis import strategies as st

from fakes.llm_steps import call, steps
from nat.data_models.evaluator import EvalInputItem
from nat.plugins.relative_judge.transcript import (
    Transcript,
    TranscriptPart,
    cut_in_the_middle,
    shared_beginning,
    shortened,
    transcript,
)

CALL = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"q": "tea"}'}}


def attempt(*turns, answer="done"):
    """An item whose rollout made one call, with these messages; the last is the model's."""
    made = steps(call(list(turns[:-1]), turns[-1])) if turns else []
    return EvalInputItem(id="a", input_obj="task", expected_output_obj=None, output_obj=answer, trajectory=made)


def test_a_trajectory_is_shown_with_its_tool_calls_and_its_answer():
    """Roles, texts, tool calls with arguments, and the workflow's answer where the last message is another text."""
    seen = transcript(
        attempt({"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}),
        "trajectory",
    )
    assert str(seen) == '[user]\nhi\n[assistant]\n→ search({"q": "tea"})\n[answer]\ndone'


def test_an_answer_that_the_last_message_has_is_shown_once():
    """Most agents return the model's last text."""
    said = {"role": "assistant", "content": "done "}
    assert (
        str(transcript(attempt({"role": "user", "content": "hi"}, said), "trajectory"))
        == "[user]\nhi\n[assistant]\ndone "
    )


def test_only_the_answer_may_be_judged():
    """With `judged: answer` the conversations are not shown."""
    seen = transcript(attempt({"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}), "answer")
    assert str(seen) == "[answer]\ndone"


def test_what_all_attempts_begin_with_is_counted_in_whole_messages():
    """A message that differs in one character is not shared."""
    one, other = (Transcript((TranscriptPart("system", "s"), TranscriptPart("user", text))) for text in ("a", "b"))
    assert shared_beginning([one, one]) == 2
    assert shared_beginning([one, other]) == 1
    assert shared_beginning([one, Transcript(())]) == 0


def test_the_longest_texts_are_cut_and_tool_calls_stay():
    """A page that a tool returned gives way before a short answer does; the note says how much is missing."""
    parts = [
        TranscriptPart("tool", "x" * 5000),
        TranscriptPart("assistant", "short", ('→ search({"q": "tea"})',)),
        TranscriptPart("tool", "y" * 300),
    ]
    text = shortened(parts, 1000)
    assert len(text) <= 1000
    assert '→ search({"q": "tea"})' in text
    assert "short" in text
    assert "y" * 300 in text
    assert "characters left out" in text


@given(st.lists(st.tuples(st.text(max_size=60), st.text(max_size=60)), max_size=6), st.integers(100, 400))
def test_the_limit_holds(texts, limit):
    """No message and no tool call can make the text longer than the limit."""
    parts = [TranscriptPart("user", text * 5, (call,)) for text, call in texts]
    text = shortened(parts, limit)
    assert len(text) <= limit
    whole = "\n".join(map(str, parts))
    assert text == whole or len(whole) > limit


def test_a_cut_keeps_both_ends():
    """The beginning has the plan, and the end has the result."""
    text = cut_in_the_middle("a" * 500 + "b" * 500, 200)
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert len(text) <= 200
