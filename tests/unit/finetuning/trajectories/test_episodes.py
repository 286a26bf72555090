from fakes.llm_steps import assistant, call, steps, system, user
from nat.data_models.finetuning import EpisodeItemRole
from nat.finetuning.trajectories.calls import calls_of
from nat.finetuning.trajectories.episodes import episode
from nat.finetuning.trajectories.messages import conversations

ASKED = assistant("", tool_calls=[{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}])
ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": "4"}


def items_of(*calls):
    return episode(conversations(calls_of(steps(*calls))))


def test_tool_messages_stay_tool_messages():
    """A tool's result keeps its role, ids and tool calls, and never appears as an answer of the model."""
    first = call([system("s"), user("2+2")], ASKED, ids=([1, 2], [3]))
    items = items_of(first, call([system("s"), user("2+2"), ASKED, ANSWERED], "four", ids=([1, 2, 3, 4], [5])))
    assert [item.role.value for item in items] == ["system", "user", "assistant", "tool", "assistant"]
    assert items[3].metadata == {"tool_call_id": "c1"}
    assert items[2].metadata is not None
    assert items[2].metadata["tool_calls"] == ASKED["tool_calls"]


def test_sampled_answers_carry_exact_tokens():
    """A sampled answer has logprobs, prompt ids, sampled ids, finish reason and policy version."""
    item = items_of(call([user("u")], "a", ids=([1, 2], [3, 4]), finish_reason="length", policy_version="m@7"))[1]
    assert item.logprobs == [-0.5, -0.5]
    assert item.metadata == {
        "model": "student",
        "finish_reason": "length",
        "policy_version": "m@7",
        "prompt_token_ids": [1, 2],
        "token_ids": [3, 4],
    }


def test_an_answer_that_was_not_sampled_is_context():
    """A few-shot example stays in the conversation as context without logprobs."""
    items = items_of(call([user("1"), assistant("one"), user("2")], "two"))
    assert (items[1].role, items[1].logprobs, items[1].metadata) == (
        EpisodeItemRole.ASSISTANT,
        {},
        {"sampled": False},
    )
