import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.llm_steps import assistant, call, steps, system, user
from nat.art.client.trajectories import art_groups, art_trajectory
from nat.art.wire import ArtChoice, ArtTrajectory
from nat.data_models.finetuning import DPOItem, EpisodeItem, Trajectory, TrajectoryCollection
from nat.errors import InvalidTrajectories
from nat.finetuning.trajectories.calls import calls_of
from nat.finetuning.trajectories.episodes import episode
from nat.finetuning.trajectories.messages import conversations

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
ASKED = assistant("", tool_calls=[{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}])
ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": "4"}


def played(*calls, reward=1.0, **metadata) -> Trajectory:
    """The trajectory that the builder makes of these calls."""
    items = episode(conversations(calls_of(steps(*calls))))
    return Trajectory(episode=items, reward=reward, metadata={"id": "007", "generation": 1, **metadata})


def converted(trajectory: Trajectory, **options) -> ArtTrajectory:
    found = art_trajectory(trajectory, **options)
    assert found is not None
    return found


def spoken(*roles: str) -> Trajectory:
    """A trajectory of another builder: roles, texts and plain log probabilities."""
    content = [{"token": "x", "logprob": -0.1, "bytes": [120], "top_logprobs": []}]
    items = [
        EpisodeItem(role=role, content=role, logprobs={"content": content} if role == "assistant" else None)
        for role in roles
    ]
    return Trajectory(episode=items, reward=0.5)


def test_a_sampled_answer_is_a_choice_with_its_ids():
    """The choice has the sampled token ids; the text is not tokenised again."""
    art = converted(played(call([system("s"), user("u")], "four", ids=([1, 2], [3, 4]), finish_reason="length")))
    first, second, choice = art.messages_and_choices
    assert (first, second) == ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
    assert isinstance(choice, ArtChoice)
    assert choice.message == {"role": "assistant", "content": "four"}
    assert choice.finish_reason == "length"
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [(t.token, t.logprob) for t in choice.logprobs.content] == [("token_id:3", -0.5), ("token_id:4", -0.5)]


@given(st.lists(st.tuples(st.integers(0, 200_000), st.floats(-50, 0)), min_size=1, max_size=20))
def test_log_probabilities_are_sent_exactly(tokens):
    """Log probabilities are equal to the last bit after JSON and back, so the ratio is exact."""
    ids, logprobs = [t for t, _ in tokens], [p for _, p in tokens]
    art = converted(played(call([user("u")], "a", ids=([1], ids), logprobs=logprobs)))
    read = ArtTrajectory.model_validate_json(art.model_dump_json(exclude_none=True, exclude_unset=True))
    choice = read.messages_and_choices[1]
    assert isinstance(choice, ArtChoice)
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [(t.token, t.logprob) for t in choice.logprobs.content] == [
        (f"token_id:{token}", logprob) for token, logprob in zip(ids, logprobs, strict=True)
    ]


def test_tool_messages_stay_tool_messages():
    """A tool's result is not sent as an answer of the model; calls, ids and tools are kept."""
    first = call([user("2+2")], ASKED, ids=([1], [2]), tools=TOOLS)
    second = call([user("2+2"), ASKED, ANSWERED], "four", ids=([1, 2, 3], [4]), tools=TOOLS)
    art = converted(played(first, second))
    _, asked, answered, answer = art.messages_and_choices
    assert isinstance(asked, ArtChoice)
    assert asked.message == {"role": "assistant", "tool_calls": ASKED["tool_calls"]}
    assert answered == ANSWERED
    assert isinstance(answer, ArtChoice)
    assert art.tools == TOOLS
    assert art.additional_histories == []


def test_answers_that_were_not_sampled_are_messages():
    """Few-shot examples and rewritten history are context and are not trained on."""
    art = converted(played(call([user("1"), assistant("one"), user("2")], "two", ids=([1], [2]))))
    assert art.messages_and_choices[1] == {"role": "assistant", "content": "one"}
    assert isinstance(art.messages_and_choices[3], ArtChoice)


def test_answers_of_another_model_are_not_trained_on():
    """Calls of another LLM are context; a rollout without a call of the trained model gives nothing."""
    plan = call([user("u")], "plan", ids=([1], [2]), llm_name="planner")
    act = call([user("act")], "done", ids=([3], [4]), llm_name="student")
    art = converted(played(plan, act), trained={"student"})
    assert len(art.messages_and_choices) == 2
    assert art.messages_and_choices[0] == {"role": "user", "content": "act"}
    assert art.additional_histories == []
    assert art_trajectory(played(plan), trained={"student"}) is None


def test_conversations_of_one_rollout_share_its_reward():
    """The first conversation is the main history, the others are additional histories; none are merged."""
    art = converted(played(call([system("A")], "a", ids=([1], [2])), call([system("B")], "b", ids=([3], [4]))))
    assert art.messages_and_choices[0] == {"role": "system", "content": "A"}
    [more] = art.additional_histories
    assert more.messages_and_choices[0] == {"role": "system", "content": "B"}
    assert isinstance(more.messages_and_choices[1], ArtChoice)


def test_answers_with_other_tools_are_histories_of_their_own():
    """Tools are part of the prompt, so an answer with other tools starts its own history."""
    first = call([user("2+2")], ASKED, ids=([1], [2]), tools=TOOLS)
    second = call([user("2+2"), ASKED, ANSWERED], "four", ids=([1, 2, 3], [4]))
    art = converted(played(first, second))
    assert (art.tools, len(art.messages_and_choices)) == (TOOLS, 2)
    [more] = art.additional_histories
    assert more.tools is None
    assert [isinstance(item, ArtChoice) for item in more.messages_and_choices] == [False, False, False, True]


def test_tokens_without_ids_are_sent_unchanged():
    """ART's own servers write `token_id:7` into the log probabilities; such tokens are sent unchanged."""
    entries = [{"token": "token_id:7", "logprob": -0.25, "bytes": [120], "top_logprobs": [{"token": "y"}]}]
    item = EpisodeItem(role="assistant", content="x", logprobs={"content": entries})
    art = converted(Trajectory(episode=[EpisodeItem(role="user", content="u"), item], reward=1.0))
    dumped = json.loads(art.model_dump_json(exclude_none=True, exclude_unset=True))
    assert dumped["messages_and_choices"][1]["logprobs"]["content"] == [
        {"token": "token_id:7", "logprob": -0.25, "bytes": [120], "top_logprobs": []}
    ]


@pytest.mark.parametrize("logprobs", [[-0.1, -0.2], {"content": [{"logprob": -0.1}]}, {}, [float("nan")], "?"])
def test_an_answer_without_tokens_is_context(logprobs):
    """An answer with log probabilities but no tokens is context."""
    items = [EpisodeItem(role="user", content="u"), EpisodeItem(role="assistant", content="a", logprobs=logprobs)]
    assert art_trajectory(Trajectory(episode=items, reward=1.0)) is None


def test_parts_of_a_message_stay_parts():
    """Message parts such as images are sent unchanged."""
    parts = [{"type": "text", "text": "what is"}, {"type": "image_url", "image_url": {"url": "x"}}]
    art = converted(played(call([{"role": "user", "content": parts}], "a cat", ids=([1], [2]))))
    assert art.messages_and_choices[0] == {"role": "user", "content": parts}


def test_a_trajectory_has_the_metadata_of_its_rollout():
    """Reward, example and generation are sent, and only facts whose type ART's metadata allows."""
    art = converted(played(call([user("u")], "a", ids=([1], [2])), reward=0.25, epoch=3, run_id="r", rows=[1]))
    assert art.reward == 0.25
    assert art.metadata == {"id": "007", "generation": 1, "epoch": 3, "run_id": "r"}


def test_an_empty_episode_is_refused():
    """An empty episode is an error with the guide's words and its place."""
    with pytest.raises(InvalidTrajectories, match=r"Trajectory episode is empty\. \(example 007, generation 1\)"):
        art_trajectory(Trajectory(episode=[], reward=1.0, metadata={"id": "007", "generation": 1}))


def test_two_answers_in_a_row_are_refused():
    """Two consecutive answers are an error that names them, because a chat template would join them."""
    with pytest.raises(ValueError, match=r"Consecutive assistant messages .* messages 2 and 3"):
        art_trajectory(spoken("user", "assistant", "assistant"))


def collection(*groups: list[Trajectory]) -> TrajectoryCollection:
    return TrajectoryCollection(trajectories=list(groups), run_id="r")


def test_groups_drop_untrainable_trajectories():
    """Untrainable trajectories are dropped with a reason; a group that becomes empty is dropped, too."""
    good, silent = spoken("user", "assistant"), spoken("user")
    infinite = spoken("user", "assistant").model_copy(update={"reward": float("inf")})
    groups, left_out = art_groups(collection([good, silent], [infinite], [good, good]))
    assert [len(group.trajectories) for group in groups] == [1, 2]
    assert "no answer of the trained model" in left_out[0]
    assert "reward" in left_out[1]


@pytest.mark.parametrize("groups", [[], [[spoken("user")]]])
def test_nothing_to_train_on_is_an_error(groups):
    """A batch without trajectories is an error with the guide's words and the first reason."""
    with pytest.raises(ValueError, match=r"No valid trajectory groups to submit\."):
        art_groups(collection(*groups))


def test_rewards_of_single_answers_are_refused():
    """Rewards of single answers are refused, because ART takes one reward per trajectory."""
    trajectory = played(call([user("u")], "a", ids=([1], [2]))).model_copy(update={"shaped_rewards": [1.0]})
    with pytest.raises(InvalidTrajectories, match=r"ART takes one reward for it \(example 007, generation 1\)"):
        art_trajectory(trajectory)


def test_a_broken_prefix_begins_another_history():
    """After a broken prefix, the new history is trained on its own answers; earlier answers are context."""
    first = call([user("1")], "a", ids=([1], [2]))
    second = call([user("1"), assistant("a"), user("2")], "b", ids=([1, 9, 3], [4]))
    art = converted(played(first, second))
    (more,) = art.additional_histories
    assert [isinstance(item, ArtChoice) for item in art.messages_and_choices] == [False, True]
    assert [isinstance(item, ArtChoice) for item in more.messages_and_choices] == [False, False, False, True]


def test_preference_pairs_are_refused():
    """ART trains conversations; a pair is named as such, not as an empty episode."""
    pair = Trajectory(episode=[DPOItem(prompt="p", chosen_response="a", rejected_response="b")], reward=1.0)
    with pytest.raises(InvalidTrajectories, match="1 of 1 trajectories are preference pairs"):
        art_groups(TrajectoryCollection(trajectories=[[pair]], run_id="r"))
