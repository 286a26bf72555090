import pytest

from fakes.llm_steps import assistant, call, steps, user
from fakes.training_rows import logprobs_of
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem
from nat.data_models.finetuning import DPOItem, EpisodeItem, EpisodeItemRole, Trajectory, TrajectoryCollection
from nat.errors import InvalidTrajectories, NoTrajectories
from nat.finetuning.trajectories.calls import Target, calls_of
from nat.finetuning.trajectories.episodes import episode
from nat.finetuning.trajectories.messages import conversations
from nat.finetuning.trajectories.outcome import scored
from nat.finetuning.trajectories.rows import broken_by, training_groups


def causes(*calls):
    return broken_by(conversations(calls_of(steps(*calls))))


def test_broken_prefixes_have_the_servers_cause():
    """Without a cause of the server, the reason of the conversation counts; unbroken rows have none."""
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


def test_training_groups_have_the_collections_examples_and_rewards():
    """An answer at the token limit marks its rollout as truncated."""
    one = trajectory("a", 1.0, call([user("1")], "x", ids=([1], [2]), finish_reason="length"))
    two = trajectory("a", 0.0, call([user("1")], "y", ids=([1], [3])))
    three = trajectory("b", 0.5, call([user("2")], "z", ids=([4], [5])))
    groups = training_groups(TrajectoryCollection(trajectories=[[one, two], [three]], run_id="r"))
    assert [(g.id, [r.reward for r in g.rollouts]) for g in groups] == [("a", [1.0, 0.0]), ("b", [0.5])]
    assert [r.truncated for r in groups[0].rollouts] == [True, False]
    assert groups[0].rollouts[0].rows[0].token_ids == [1, 2]


def test_trajectories_without_ids_are_left_out():
    """Text is never tokenised again; a collection without any ids is an error."""
    exact = trajectory("a", 1.0, call([user("1")], "x", ids=([1], [2])))
    text = trajectory("a", 0.0, call([user("1")], "x"))
    mixed = training_groups(TrajectoryCollection(trajectories=[[exact, text]], run_id="r"))
    assert len(mixed[0].rollouts) == 1
    with pytest.raises(NoTrajectories, match="none of 1 trajectories has the token ids"):
        training_groups(TrajectoryCollection(trajectories=[[text]], run_id="r"))


def test_other_builders_need_only_fill_the_items():
    """Rows are made from the items' metadata and OpenAI's logprobs."""
    said = EpisodeItem(
        role=EpisodeItemRole.ASSISTANT,
        content="hi",
        logprobs={"content": [{"token": "hi", "logprob": -0.1}]},
        metadata={"prompt_token_ids": [1, 2], "token_ids": [3]},
    )
    collection = TrajectoryCollection(trajectories=[[Trajectory(episode=[said], reward=1.0)]], run_id="r")
    (group,) = training_groups(collection)
    assert (group.id, logprobs_of(group.rollouts[0].rows[0])) == ("0", [None, None, -0.1])


def recorded(*calls, shaped=None):
    return trajectory("a", 1.0, *calls).model_copy(update={"shaped_rewards": shaped})


def sent(*trajectories, model=None):
    """The rows of each rollout for the backend."""
    (group,) = training_groups(TrajectoryCollection(trajectories=[list(trajectories)], run_id="r"), model=model)
    return [rollout.rows for rollout in group.rollouts]


FIRST = call([user("1")], "a", ids=([1], [2]))
SECOND = call([user("1"), assistant("a"), user("2")], "b", ids=([1, 2, 3], [4]))


def test_changes_of_a_plug_in_to_a_trajectory_count():
    """An answer that it marks as not sampled is not trained on; its shaped rewards are the returns."""
    made = recorded(FIRST, SECOND, shaped=[1.0, 2.0])
    made.answers[0].metadata["sampled"] = False
    made.shaped_rewards = [5.0]
    (row,) = sent(made)[0]
    assert (row.num_sampled, [span.value for span in row.spans]) == (1, [5.0])
    copied = recorded(FIRST, SECOND, shaped=[1.0, 2.0]).model_copy(update={"shaped_rewards": [3.0, 4.0]})
    assert [span.value for span in sent(copied)[0][0].spans] == [3.0, 4.0]


def test_preference_pairs_are_no_conversations():
    """An algorithm that trains sampled answers refuses pairs by name, instead of missing their token ids."""
    item = DPOItem(prompt="p", chosen_response="a", rejected_response="b")
    pair = Trajectory(episode=[item], reward=1.0)
    collection = TrajectoryCollection(trajectories=[[pair, trajectory("a", 1.0, FIRST)]], run_id="r")
    with pytest.raises(InvalidTrajectories, match="1 of 2 trajectories are preference pairs"):
        training_groups(collection)


def test_a_record_has_the_tools_of_each_conversation():
    """Those of its last request, or none."""
    tools = [[{"type": "function", "function": {"name": name}}] for name in ("look", "add")]
    calls = [
        call([user("1")], "x", tools=tools[0]),
        call([user("2")], "y"),
        call([user("3")], "z", tools=tools[0]),
        call([user("3"), assistant("z"), user("4")], "z", tools=tools[1]),
        call([user("5")], "z", tools=list(tools[0])),
    ]
    item = EvalInputItem(id="a", input_obj="1", expected_output_obj="2", output_obj="2", trajectory=steps(*calls))
    score = EvalOutputItem(id="a", score=1.0, reasoning=None)
    record = scored(item, score, 1.0, generation=0, target=Target(["<workflow>"]), metadata={}, facts={})[0]
    assert [each.tools for each in record.conversations] == [tools[0], [], tools[1], tools[0]]


def test_a_record_counts_answers_whose_calls_could_not_be_read():
    """One that the token limit has cut off is a cause of its own: its remedy is another."""
    causes = [("unclosed", "stop"), ("unclosed", "length"), ("malformed", "length"), (None, "stop")]
    calls = [
        call([user(f"{number}")], "x", lost_call=cause, finish_reason=reason)
        for number, (cause, reason) in enumerate(causes)
    ]
    item = EvalInputItem(id="a", input_obj="1", expected_output_obj="2", output_obj="2", trajectory=steps(*calls))
    score = EvalOutputItem(id="a", score=1.0, reasoning=None)
    record = scored(item, score, 1.0, generation=0, target=Target(["<workflow>"]), metadata={}, facts={})[0]
    assert record.lost_calls == {"unclosed": 1, "cut_off": 1, "malformed": 1}
