"""The calls that ART's clients capture from 0.5.20 on, in the shapes of 0.5.23's dumps."""

import pytest

from fakes.art_answers import choice, user
from fakes.tiny_model import tiny_tokenizer
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.store import ModelKey
from nat.art.server.trajectories import HistoryReader
from nat.art.wire import ArtTrajectory
from nat.backend.tokenizer import ChatTokenizer
from nat.errors import BatchRefused

TOKENIZER = ChatTokenizer(tiny_tokenizer())
OURS = "wandb-artifact:///local/demo/agent:step3"
TEXT = {"text": "an", "index": 0, "finish_reason": "stop", "prompt_token_ids": [5, 6], "token_ids": [7, 8]}
BY_API = {
    "chat_completions": {"choices": [choice([7, 8]).model_dump()], "prompt_token_ids": [5, 6]},
    "completions": {"choices": [TEXT | {"logprobs": {"tokens": ["a", "n"], "token_logprobs": [-1.0, -1.0]}}]},
    "responses": {
        "output": [{"type": "message"}],
        "token_generations": [
            {"prompt_token_ids": [5, 6], "output_tokens": [{"token_id": t, "logprob": -1.0} for t in (7, 8)]}
        ],
    },
    "messages": {
        "content": [{"type": "text", "text": "an"}],
        "prompt_token_ids": [5, 6],
        "token_ids": [7, 8],
        "logprobs": [-1.0, -1.0],
    },
}


def call(response, *, model=OURS, **request):
    times = {"start_time": "2026-11-29T10:00:00Z", "end_time": "2026-11-29T10:00:01Z"}
    return {"request": {"model": model, **request}, "response": response, "model": model, **times}


def read(served=None, **exchanges):
    """The rows of a rollout with these calls."""
    reader = HistoryReader(TOKENIZER, 265, served or ServedAnswers(), ModelKey("demo", "agent"))
    return reader.rows(ArtTrajectory.model_validate({"reward": 1.0, "exchanges": exchanges}), where="t")


@pytest.mark.parametrize("api", BY_API)
def test_captured_calls_of_each_api_are_trained_token_by_token(api):
    """Prompt and answer are the server's own tokens, and nothing is tokenised again."""
    found = read(**{api: [call(BY_API[api])]})
    (row,) = found.rows
    assert row.token_ids == [5, 6, 7, 8]
    assert [(span.start, span.stop, span.logprobs) for span in row.spans] == [(2, 4, [-1.0, -1.0])]
    assert (found.answers, found.retokenized) == (1, 0)


def test_the_turns_of_a_captured_chat_are_one_row():
    """A turn whose prompt begins with the turn before continues its row; a prompt that was not sent is remembered."""
    served = ServedAnswers()
    served.remember([5, 6, 7, 8, 9], [10], [-0.5])
    second = {"choices": [choice([10], [-0.5]).model_dump()]}
    (row,) = read(served, chat_completions=[call(BY_API["chat_completions"]), call(second)]).rows
    assert row.token_ids == [5, 6, 7, 8, 9, 10]
    assert len(row.spans) == 2


def test_a_prompt_that_nobody_knows_is_rendered_from_the_request():
    """With its messages and tools, and counted."""
    tool = {"type": "function", "function": {"name": "add"}}
    chat = {"choices": [choice([7]).model_dump(), choice([8]).model_dump()]}
    found = read(chat_completions=[call(chat, messages=[user("a")], tools=[tool])])
    prompt = TOKENIZER.render_chat([user("a")], tools=[tool])
    assert [row.token_ids for row in found.rows] == [[*prompt, 7], [*prompt, 8]]
    assert found.retokenized == 2


def test_calls_to_other_models_are_not_trained():
    """A judge, the base model, and a model of another project are captured, too."""
    others = [call({"choices": [choice([9]).model_dump()]}, model=m) for m in ("gpt-5", "wandb-artifact:///l/x/agent")]
    found = read(chat_completions=[*others, call(BY_API["chat_completions"], model="agent")], messages=[others[0]])
    assert [row.token_ids for row in found.rows] == [[5, 6, 7, 8]]


@pytest.mark.parametrize(
    ("exchanges", "words"),
    [
        ({"chat_completions": [call({"choices": []}, model="gpt-5")]}, ("t.exchanges", "agent", "gpt-5")),
        ({"messages": [call({"content": []})]}, ("t.exchanges.messages.0", "sampled ones")),
        ({"responses": [call(BY_API["messages"] | {"logprobs": []})]}, ("t.exchanges.responses.0", "logprobs")),
        ({"completions": [call({"choices": [TEXT]})]}, ("t.exchanges.completions.0", "logprobs")),
        ({"messages": [call(BY_API["messages"] | {"prompt_token_ids": []})]}, ("exchanges.messages.0", "its prompt")),
        ({"messages": [call(BY_API["messages"] | {"prompt_token_ids": [265]})]}, ("prompt_token_ids", "265")),
    ],
    ids=["no call of the model", "no tokens", "no logprobs", "no logprobs of a text", "no prompt", "unknown token"],
)
def test_a_call_that_cannot_be_read_is_refused_by_name(exchanges, words):
    """The error names the call's place and what it lacks; a rollout without calls is none."""
    with pytest.raises(BatchRefused) as error:
        read(**exchanges)
    assert [word for word in words if word not in str(error.value)] == []
    assert read().rows == []
