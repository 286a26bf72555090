"""Conversations become rows of exact tokens."""

import json

import pytest

from fakes.art_answers import choice, said, trajectory, user
from fakes.tiny_model import tiny_tokenizer
from fakes.training_rows import logprobs_of
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.store import ModelKey
from nat.art.server.trajectories import HistoryReader
from nat.art.wire import ArtTrajectory
from nat.backend.tokenizer import ChatTokenizer
from nat.errors import BatchRefused
from nat.wire.sampling import read_sampling

TOKENIZER = ChatTokenizer(tiny_tokenizer())
SYSTEM = {"role": "system", "content": "play"}


def read(found, served=None):
    return HistoryReader(TOKENIZER, 265, served or ServedAnswers(), ModelKey("demo", "agent")).rows(found, where="t")


def text(token_ids):
    return TOKENIZER.hf.decode(token_ids)


def sampled(row):
    return [row.token_ids[at] for at in row.targets]


def test_one_answer_is_one_row():
    """The prompt ends where the assistant begins; the sampled tokens with the end of turn carry loss."""
    found = read(trajectory(1, SYSTEM, user("go"), said(TOKENIZER, "here")))
    (row,) = found.rows
    prompt = TOKENIZER.render_chat([SYSTEM, user("go")])
    assert row.token_ids == [*prompt, *TOKENIZER.encode("here"), TOKENIZER.eos_token_id]
    assert logprobs_of(row) == [None] * len(prompt) + [-1.0] * (len(TOKENIZER.encode("here")) + 1)
    assert (found.answers, found.retokenized) == (1, 1)


def test_continued_turns_are_one_row():
    """A prompt that begins with all tokens before it continues the row, the template's separators included."""
    found = read(trajectory(1, user("a"), said(TOKENIZER, "b"), user("c"), said(TOKENIZER, "d")))
    (row,) = found.rows
    assert text(row.token_ids) == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\nd<|im_end|>"
    )
    assert text(sampled(row)) == "b<|im_end|>d<|im_end|>"


def test_the_served_prompt_is_used_if_it_is_known():
    """Sampled tokens are kept even if their text would be tokenised differently; none count as retokenised."""
    t_h_e = [*TOKENIZER.encode("t"), *TOKENIZER.encode("h"), *TOKENIZER.encode("e"), TOKENIZER.eos_token_id]
    assert TOKENIZER.encode("the") != t_h_e[:-1]
    served, answers = ServedAnswers(), [choice(t_h_e, content="the"), said(TOKENIZER, "end")]
    first = TOKENIZER.render_chat([user("a")])
    second = [*first, *t_h_e, *TOKENIZER.encode("\nmore")]
    served.remember(first, t_h_e, [-1.0] * 4)
    served.remember(second, [*TOKENIZER.encode("end"), TOKENIZER.eos_token_id], [-1.0] * 4)
    asked = trajectory(1, user("a"), answers[0], user("b"), answers[1])
    (row,) = read(asked, served).rows
    assert row.token_ids == [*second, *TOKENIZER.encode("end"), TOKENIZER.eos_token_id]
    assert read(asked, served).retokenized == 0
    assert (len(read(asked).rows), read(asked).retokenized) == (2, 2)


def test_a_sure_answer_to_several_prompts_belongs_to_its_conversation():
    """Log probabilities of zero do not identify the prompt, so the messages decide."""
    served = ServedAnswers()
    for question in ("a", "b", "c"):
        served.remember(TOKENIZER.render_chat([user(question)]), [7], [0.0])
    for question in ("a", "b", "c"):
        (row,) = read(trajectory(1, user(question), choice([7], [0.0])), served).rows
        assert row.token_ids == [*TOKENIZER.render_chat([user(question)]), 7]


def test_plain_messages_are_context():
    """Assistant messages that are no choice, and choices without log probabilities, are not trained on."""
    silent = {"finish_reason": "stop", "index": 0, "logprobs": None, "message": {"role": "assistant", "content": "b"}}
    for before in ({"role": "assistant", "content": "b"}, silent):
        found = read(
            ArtTrajectory.model_validate(
                {"reward": 1, "messages_and_choices": [user("a"), before, user("c"), said(TOKENIZER, "d").model_dump()]}
            )
        )
        (row,) = found.rows
        assert text(row.token_ids).count("<|im_start|>assistant\nb<|im_end|>") == 1
        assert text(sampled(row)) == "d<|im_end|>"
    assert read(trajectory(1, user("a"), {"role": "assistant", "content": "b"})).rows == []


def test_tool_messages_keep_their_role_and_calls_their_arguments():
    """The template gets the tools wrapped once, arguments as an object, and results with the role `tool`."""
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    tool = {"type": "function", "function": {"name": "add"}}
    found = read(
        trajectory(
            1,
            user("1+1"),
            choice([5], content=None, tool_calls=[call]),
            {"role": "tool", "tool_call_id": "1", "content": "2"},
            said(TOKENIZER, "two"),
            tools=[{"type": "function", "function": tool}],
        )
    )
    last = text(found.rows[-1].token_ids)
    assert last.startswith(f"<|im_start|>tools\n{json.dumps(tool)}\n<|im_end|>")
    assert '"arguments": {"a": 1}' in last
    assert "<|im_start|>tool\n2<|im_end|>" in last


def test_additional_histories_belong_to_the_trajectory():
    """Each conversation gives its own rows; all belong to one trajectory."""
    found = read(
        trajectory(
            1,
            user("a"),
            said(TOKENIZER, "b"),
            additional_histories=[{"messages_and_choices": [user("x"), said(TOKENIZER, "y")]}],
        )
    )
    assert [text(sampled(row)) for row in found.rows] == ["b<|im_end|>", "y<|im_end|>"]
    assert found.answers == 2


@pytest.mark.parametrize("token", ["token_id:265", "token_id:-1", "token_id:x", "no such token"])
def test_a_token_outside_of_the_vocabulary_is_refused_with_its_place(token):
    """A token of another model's vocabulary is an error that names its place."""
    answer = choice([1, 2])
    answer.logprobs.content[1].token = token
    with pytest.raises(BatchRefused, match=rf"t\.messages_and_choices\.1\.logprobs\.content\.1\.token '{token}'"):
        read(trajectory(1, user("a"), answer))


def test_messages_that_cannot_be_rendered_are_refused_with_their_place():
    """A message that cannot be rendered, such as an image, is an error that names its place."""
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}
    history = {"messages_and_choices": [picture, choice([1])]}
    with pytest.raises(BatchRefused, match=r"t\.additional_histories\.0\.messages_and_choices\.1.*image_url"):
        read(trajectory(1, additional_histories=[history]))


def test_a_served_answer_is_trained_at_its_temperature():
    """The server remembers the temperature of each answer, since the client does not send it back."""
    served, prompt = ServedAnswers(), TOKENIZER.render_chat([user("a")])
    first, second = TOKENIZER.encode("b"), TOKENIZER.encode("d")
    served.remember(prompt, first, [-1.0] * len(first), read_sampling({"temperature": 0.5}))
    served.remember([*prompt, *first, 9], second, [-1.0] * len(second))
    found = read(trajectory(1, user("a"), choice(first), user("c"), choice(second)), served)
    (row,) = found.rows
    assert [(span.size, span.temperature) for span in row.spans] == [(1, 0.5), (1, 1.0)]


def test_a_greedy_answer_is_context_only():
    """A greedy answer carries no loss and is counted by its sampling."""
    served, prompt = ServedAnswers(), TOKENIZER.render_chat([user("a")])
    greedy, drawn = TOKENIZER.encode("b"), TOKENIZER.encode("d")
    served.remember(prompt, greedy, [-1.0] * len(greedy), read_sampling({"temperature": 0, "top_p": 0.9}))
    served.remember([*prompt, *greedy, 9], drawn, [-1.0] * len(drawn))
    found = read(trajectory(1, user("a"), choice(greedy), user("c"), choice(drawn)), served)
    (row,) = found.rows
    assert row.token_ids == [*prompt, *greedy, 9, *drawn]
    assert sampled(row) == drawn
    assert found.untrainable == {"temperature=0, top_p=0.9": 1}
