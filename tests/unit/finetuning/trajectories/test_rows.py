import pytest

from fakes.llm_steps import assistant, call, steps, user
from nat.data_models.finetuning import EpisodeItem, EpisodeItemRole, Trajectory, TrajectoryCollection
from nat.errors import NoTrajectories
from nat.finetuning.trajectories.calls import calls_of
from nat.finetuning.trajectories.episodes import episode
from nat.finetuning.trajectories.messages import conversations
from nat.finetuning.trajectories.rows import broken_by, rows_of, training_groups


def causes(*calls):
    return broken_by(conversations(calls_of(steps(*calls))))


def test_broken_prefixes_are_counted():
    """Broken is a call that goes on by its messages and not by its tokens; a fork or a new agent is not."""
    first = call([user("1")], "a", ids=([1], [2]))
    broken = call([user("1"), assistant("a"), user("2")], "b", ids=([1, 9, 3], [4]))
    intact = call([user("1"), assistant("a"), user("2")], "b", ids=([1, 2, 3], [4]))
    fork = call([user("1"), assistant("a"), user("3")], "c", ids=([1, 2, 5], [6]))
    other = call([user("other")], "x", ids=([7], [8]))
    assert causes(first, broken) == {"retokenized": 1}
    assert causes(first, intact, fork, other) == {}
    assert len(rows_of(calls_of(steps(first, intact, fork, other)))) == 3


def test_broken_prefixes_have_the_cause_that_the_server_told():
    """Where it told none, the way in which the conversation began; a cause that broke no row is not counted."""
    first = call([user("1")], "a", ids=([1], [2]), broken_prefix="not_served")
    again = [user("1"), assistant("a"), user("2")]
    told = call(again, "b", ids=([1, 9, 3], [4]), broken_prefix="template_rewrites")
    other = call(again, "b", ids=([1, 9, 3], [4]))
    changed = call([user("in short"), assistant("a"), user("2")], "b", ids=([7, 9, 3], [4]))
    assert causes(first, told) == {"template_rewrites": 1}
    assert causes(first, other) == {"retokenized": 1}
    assert causes(first, changed) == {"rewritten": 1}


def trajectory(example, reward, *calls):
    return Trajectory(episode=episode(conversations(calls_of(steps(*calls)))), reward=reward, metadata={"id": example})


def test_training_groups_are_the_collection_on_the_wire():
    """Groups keep their examples, rollouts their rewards; a token limit marks the rollout as truncated."""
    one = trajectory("a", 1.0, call([user("1")], "x", ids=([1], [2]), finish_reason="length"))
    two = trajectory("a", 0.0, call([user("1")], "y", ids=([1], [3])))
    three = trajectory("b", 0.5, call([user("2")], "z", ids=([4], [5])))
    groups = training_groups(TrajectoryCollection(trajectories=[[one, two], [three]], run_id="r"))
    assert [(g.id, [r.reward for r in g.rollouts]) for g in groups] == [("a", [1.0, 0.0]), ("b", [0.5])]
    assert [r.truncated for r in groups[0].rollouts] == [True, False]
    assert groups[0].rollouts[0].rows[0].token_ids == [1, 2]


def test_each_answer_goes_to_the_backend_with_its_temperature():
    """From the calls and from the episodes alike: the one that its log probabilities are of."""
    first = call([user("1")], "x", ids=([1], [2]), temperature=0.5, logprobs_temperature=0.5)
    second = call([user("1"), assistant("x"), user("2")], "y", ids=([1, 2, 3], [4, 5]))
    raw = call([user("3")], "z", ids=([6], [7]), temperature=0.5)
    for rows in (
        rows_of(calls_of(steps(first, second, raw))),
        training_groups(TrajectoryCollection(trajectories=[[trajectory("a", 1.0, first, second, raw)]], run_id="r"))[0]
        .rollouts[0]
        .rows,
    ):
        assert [(t.num_tokens, t.temperature) for t in rows[0].temperatures or ()] == [(1, 0.5), (2, 1.0)]
        assert rows[1].temperatures is None


def test_trajectories_without_ids_are_left_out_and_none_at_all_is_an_error():
    """Text is never tokenised again; a collection without any ids says so."""
    exact = trajectory("a", 1.0, call([user("1")], "x", ids=([1], [2])))
    text = trajectory("a", 0.0, call([user("1")], "x"))
    mixed = training_groups(TrajectoryCollection(trajectories=[[exact, text]], run_id="r"))
    assert len(mixed[0].rollouts) == 1
    with pytest.raises(NoTrajectories, match="none of 1 trajectories has the token ids"):
        training_groups(TrajectoryCollection(trajectories=[[text]], run_id="r"))


def test_the_builders_of_others_need_only_fill_the_items():
    """Rows come from the items' metadata and OpenAI's logprobs, so that any builder can feed an exact backend."""
    said = EpisodeItem(
        role=EpisodeItemRole.ASSISTANT,
        content="hi",
        logprobs={"content": [{"token": "hi", "logprob": -0.1}]},
        metadata={"prompt_token_ids": [1, 2], "token_ids": [3]},
    )
    collection = TrajectoryCollection(trajectories=[[Trajectory(episode=[said], reward=1.0)]], run_id="r")
    (group,) = training_groups(collection)
    assert (group.id, group.rollouts[0].rows[0].logprobs) == ("0", [None, None, -0.1])
