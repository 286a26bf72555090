import math

import pytest
from pydantic import BaseModel

from fakes.ttc_steps import STEP, candidate, step
from nat.data_models.finetuning import OpenAIMessage
from nat.data_models.intermediate_step import StreamEventData
from nat.finetuning.preferences.candidates import find_candidates
from nat.preferences.pairs import SkipCause


def found(*steps, **options):
    return find_candidates("e1", steps, STEP, **options)


def only(*steps):
    [one], skipped = found(*steps)
    assert skipped == []
    return one


def skip(*steps, **options):
    candidates, [one] = found(*steps, **options)
    assert candidates == []
    return one


class ChatMessage(BaseModel):
    """LangChain's shape of a message."""

    type: str
    content: str | list


def test_a_candidate_has_all_that_was_pushed():
    """Turn, index, prompt, response, score and metadata are those of the step."""
    one = only(candidate(0.5, "B2", prompt="board", turn="t3", index=2, metadata={"move": "B2"}))
    assert (one.example_id, one.turn_id, one.candidate_index, one.score) == ("e1", "t3", 2, 0.5)
    assert (one.prompt, one.response, one.raw_metadata) == ("board", "B2", {"move": "B2"})


def test_candidates_without_an_index_are_numbered_by_turn():
    """The toolkit's 0 for all of them would make them indistinguishable."""
    candidates, _ = found(candidate(1.0), candidate(0.5), candidate(0.1, turn="t1"))
    assert [(c.turn_id, c.candidate_index) for c in candidates] == [("t0", 0), ("t0", 1), ("t1", 0)]


@pytest.mark.parametrize(
    ("wrong", "cause", "seen"),
    [
        (candidate(math.nan), SkipCause.BAD_SCORE, "turn t0, candidate 0: the score is nan"),
        (candidate(math.inf), SkipCause.BAD_SCORE, "the score is inf"),
        (candidate("nan"), SkipCause.BAD_SCORE, "the score is nan"),
        (candidate(None), SkipCause.BAD_SCORE, "turn t0, candidate 0"),
        (candidate(1.0, turn=None), SkipCause.BAD_DATA, "turn_id None"),
        (candidate(1.0, output=None), SkipCause.BAD_RESPONSE, "None"),
        (candidate(1.0, output=["a"]), SkipCause.BAD_RESPONSE, "list"),
        (candidate(1.0, prompt=None), SkipCause.BAD_PROMPT, "None"),
        (candidate(1.0, prompt=[]), SkipCause.BAD_PROMPT, "list"),
        (candidate(1.0, prompt=[{"content": "x"}]), SkipCause.BAD_PROMPT, "without role"),
        (candidate(1.0, prompt=["x"]), SkipCause.BAD_PROMPT, "without role"),
        (step(), SkipCause.BAD_DATA, "turn_id None"),
        (step(data=StreamEventData(turn_id="t", score="high")), SkipCause.BAD_DATA, "score: should be a valid number"),
    ],
)
def test_what_cannot_be_read_is_skipped_with_its_place(wrong, cause, seen):
    """Nothing is replaced by a default; the place says what was seen."""
    one = skip(wrong)
    assert one.cause is cause
    assert one.where.startswith("example e1: ")
    assert seen in one.where


def test_prompts_of_messages_are_kept():
    """OpenAI's and LangChain's shapes are read, system prompts and text parts included."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    prompt = [{"role": "system", "content": "s"}, OpenAIMessage(role="user", content="u")]
    prompt += [ChatMessage(type="ai", content="earlier"), ChatMessage(type="human", content=parts)]
    assert only(candidate(1.0, prompt=prompt)).prompt == [
        OpenAIMessage(role="system", content="s"),
        OpenAIMessage(role="user", content="u"),
        OpenAIMessage(role="assistant", content="earlier"),
        OpenAIMessage(role="user", content="ab"),
    ]


def test_tool_calls_stay_in_the_prompt():
    """A prompt without them would be a conversation that never happened; empty lists are no calls."""
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}
    answered = {"role": "tool", "tool_call_id": "c1", "content": "4"}
    user = {"role": "user", "content": "2 + 2", "tool_calls": []}
    prompt = only(candidate(1.0, prompt=[user, asked, answered])).prompt
    assert [message.model_dump() for message in prompt] == [
        {"role": "user", "content": "2 + 2"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        answered,
    ]


def test_the_own_answer_is_removed_from_the_prompt():
    """An agent that appends the answer before it pushes the step trains no model to repeat its prompt."""
    asked = {"role": "user", "content": "board"}
    one = only(candidate(1.0, "B2", prompt=[asked, {"role": "assistant", "content": "B2\n"}]))
    assert one.prompt == [OpenAIMessage(**asked)]
