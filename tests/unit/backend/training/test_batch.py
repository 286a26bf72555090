"""From groups to rows, to micro-batches and to optimizer steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.backend.algorithms.registry import resolve
from nat.backend.training.batch import Row, make_batch, sampled_tokens_per_rollout
from nat.backend.training.micro_batch import optimizer_steps, pack, shared_prefix
from nat.backend.tree_attention import unique_tokens
from nat.errors import UpdateRejected
from nat.wire.training import AnswerReturn, TrainingConfig, TrainingGroup, TrainingRollout, TrainingRow


def rollout(reward, *rows, truncated=False):
    made = [TrainingRow(token_ids=list(range(10, 10 + len(row))), logprobs=row) for row in rows]
    return TrainingRollout(reward=reward, rows=made, truncated=truncated)


def row(index, length, group=0):
    return Row(index, group, index, [0] * length, [0], [0], [0.0], [1.0])


def test_a_row_ends_with_its_last_sampled_token():
    """Targets are the sampled tokens, each predicted one place before; what follows the last is not computed."""
    groups = [
        TrainingGroup(
            id="a", rollouts=[rollout(1, [None, None, -0.5, None, -0.25, None, None]), rollout(0, [None, -1.0])]
        )
    ]
    first = make_batch(groups, resolve(TrainingConfig())).rows[0]
    assert first.input_ids == [10, 11, 12, 13]
    assert (first.positions, first.targets, first.sampler_logprobs) == ([1, 3], [12, 14], [-0.5, -0.25])


def test_rows_of_a_rollout_share_its_advantage_and_weigh_together():
    """A rollout in two rows is one rollout: one advantage, and its tokens are counted over both."""
    groups = [TrainingGroup(id="a", rollouts=[rollout(1, [None, -1.0], [None, -1.0, -1.0]), rollout(0, [None, -1.0])])]
    rows = make_batch(groups, resolve(TrainingConfig(normalize_advantages=False))).rows
    assert [r.advantages for r in rows] == [[0.5], [0.5, 0.5], [-0.5]]
    assert sampled_tokens_per_rollout(rows) == {0: 3, 1: 1}


def test_truncated_rollouts_can_be_masked():
    """Masked rollouts leave the loss, but their reward stays in the comparison."""
    groups = [TrainingGroup(id="a", rollouts=[rollout(1, [None, -1.0]), rollout(0, [None, -1.0], truncated=True)])]
    kept = make_batch(groups, resolve(TrainingConfig(mask_truncated_completions=True, normalize_advantages=False)))
    assert [r.advantages for r in kept.rows] == [[0.5]]
    assert kept.truncated_share == 0.5
    assert len(make_batch(groups, resolve(TrainingConfig())).rows) == 2


def test_a_group_whose_better_and_worse_rollouts_are_masked_is_left_out():
    """What is left of it is as good as the mean, so nothing could be learned; across groups, the others count, too."""
    rollouts = [rollout(reward, [None, -1.0], truncated=reward != 0.5) for reward in (0, 0.5, 1)]
    config = TrainingConfig(mask_truncated_completions=True)
    assert make_batch([TrainingGroup(id="a", rollouts=rollouts)], resolve(config)).rows == []
    groups = [TrainingGroup(id=str(reward), rollouts=[rollout(reward, [None, -1.0])]) for reward in (0, 0.5, 1)]
    assert len(make_batch(groups, resolve(TrainingConfig(advantage="reinforce_pp"))).rows) == 3


def test_each_update_deals_in_an_order_of_its_own():
    """Groups do not meet in the same steps epoch after epoch; the same update is dealt out the same way again."""
    rows = [row(i, 3, group=i) for i in range(12)]
    for config in (TrainingConfig(steps_per_batch=3), TrainingConfig(tokens_per_step=9)):
        updates = [
            tuple(tuple(r.index for r in hand) for hand in optimizer_steps(rows, config, step)) for step in (0, 3, 6)
        ]
        assert len(set(updates)) == 3
        assert optimizer_steps(rows, config, 3) == optimizer_steps(rows, config, 3)


def test_rows_without_sampled_tokens_are_left_out():
    """They can carry no loss."""
    groups = [TrainingGroup(id="a", rollouts=[rollout(1, [None, None], [None, -1.0]), rollout(0, [None, -1.0])])]
    assert len(make_batch(groups, resolve(TrainingConfig())).rows) == 2


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 100))
def test_packing_keeps_every_row_within_the_limit(lengths, limit):
    """Each row is in one micro-batch; none exceeds the limit, except by a single row that is longer."""
    packed = pack([row(i, length) for i, length in enumerate(lengths)], limit)
    assert sorted(r.index for part in packed for r in part) == list(range(len(lengths)))
    assert all(len(part) == 1 or unique_tokens([r.input_ids for r in part]) <= limit for part in packed)


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 3))
def test_every_pass_deals_out_every_group_once(groups, passes, steps, seed):
    """Steps are even to one group, none is empty, and the same seed deals the same way."""
    rows = [row(i, 3, group=i // 2) for i in range(2 * groups)]
    config = TrainingConfig(num_iterations=passes, steps_per_batch=steps, seed=seed)
    dealt = optimizer_steps(rows, config)
    per_pass = min(steps, groups)
    assert len(dealt) == passes * per_pass
    for number in range(passes):
        hands = [{r.group for r in hand} for hand in dealt[number * per_pass : (number + 1) * per_pass]]
        assert sorted(g for hand in hands for g in hand) == list(range(groups))
        assert max(map(len, hands)) - min(map(len, hands)) <= 1
    assert dealt == optimizer_steps(rows, config)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), min_size=1, max_size=12), st.integers(1, 60))
def test_steps_are_filled_with_whole_rollouts(rollouts, limit):
    """No step exceeds the limit but by a single rollout that is longer, each row is in one step, none is empty."""
    rows = [
        Row(2 * n + part, group, n, [0] * length, [0], [0], [0.0], [1.0])
        for n, (group, length) in enumerate(rollouts)
        for part in range(2)
    ]
    config = TrainingConfig(tokens_per_step=limit, num_iterations=2, seed=1)
    steps = optimizer_steps(rows, config)
    assert sorted(r.index for step in steps for r in step) == sorted([*range(len(rows))] * 2)
    for step in steps:
        own = {r.rollout for r in step}
        assert len(step) == 2 * len(own) > 0
        assert len(own) == 1 or sum(r.num_tokens for r in step) <= limit
    assert steps == optimizer_steps(rows, config)


def test_groups_are_side_by_side_in_a_step():
    """What is compared with each other moves the weights together; the order of the groups depends on the seed."""
    rows = [row(i, 3, group=i % 2) for i in range(8)]
    for seed in range(5):
        steps = optimizer_steps(rows, TrainingConfig(tokens_per_step=16, seed=seed))
        assert [{r.group for r in step} for step in steps] in ([{0}, {1}], [{1}, {0}])
    orders = {
        tuple(r.index for step in optimizer_steps(rows, TrainingConfig(tokens_per_step=16, seed=s)) for r in step)
        for s in range(5)
    }
    assert len(orders) > 1


def test_one_way_to_deal_a_batch_out():
    """Number and size of the steps cannot both be fixed."""
    with pytest.raises(ValueError, match="tokens_per_step 5 and steps_per_batch 2"):
        TrainingConfig(tokens_per_step=5, steps_per_batch=2)


def test_given_advantages_and_weights_reach_the_rows():
    """All rows of a rollout have its advantage and its weight."""
    groups = [TrainingGroup(id="a", rollouts=[rollout(0, [None, -1.0], [None, -2.0]), rollout(0, [None, -1.0])])]
    for r, (advantage, weight) in zip(groups[0].rollouts, [(2.0, 0.5), (-1.0, 3.0)], strict=True):
        r.advantage, r.weight = advantage, weight
    rows = make_batch(groups, resolve(TrainingConfig(advantage="given", normalize_advantages=False))).rows
    assert [(r.advantages, r.weight) for r in rows] == [([2.0], 0.5), ([2.0], 0.5), ([-1.0], 3.0)]


@pytest.mark.parametrize(("given", "method", "seen"), [(None, "given", "has no"), (1.0, "rloo", "carries an")])
def test_advantages_are_given_or_computed(given, method, seen):
    """A job that gives some where they are computed, or gives none where they are needed, is refused with the place."""
    groups = [TrainingGroup(id="a", rollouts=[rollout(0, [None, -1.0])])]
    groups[0].rollouts[0].advantage = given
    with pytest.raises(UpdateRejected, match=rf"groups\.0\.rollouts\.0 {seen} advantage.*{method}"):
        make_batch(groups, resolve(TrainingConfig(advantage=method)))


def prompted(index, prompt, answer, *, group=0):
    """A row that was sampled after its prompt."""
    whole = [*prompt, *answer]
    positions = list(range(len(prompt) - 1, len(whole) - 1))
    return Row(index, group, index, whole[:-1], positions, answer, [0.0] * len(answer), [1.0] * len(answer))


def test_a_shared_prompt_takes_its_room_once():
    """Four answers of 10 tokens to one prompt of 100 need 99 + 4 · 11 tokens; another group brings its own prompt."""
    rows = [prompted(i, [7] * 100, [i] * 10) for i in range(4)]
    assert shared_prefix(rows) == 99
    assert len(optimizer_steps(rows, TrainingConfig(tokens_per_step=143))) == 1
    assert sorted(map(len, optimizer_steps(rows, TrainingConfig(tokens_per_step=142)))) == [1, 3]
    rows.append(prompted(4, [8] * 100, [4] * 10, group=1))
    assert len(optimizer_steps(rows, TrainingConfig(tokens_per_step=143 + 109))) == 2
    assert len(optimizer_steps(rows, TrainingConfig(tokens_per_step=143 + 110))) == 1


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=5), st.integers(1, 3)), min_size=1, max_size=4)
)
def test_the_shared_prefix_is_what_all_prompts_begin_with(prompts):
    """No sampled token is in it, nor the place that predicts the first one."""
    rows = [prompted(i, prompt, [9] * length) for i, (prompt, length) in enumerate(prompts)]
    shared = shared_prefix(rows)
    assert len({tuple(row.input_ids[:shared]) for row in rows}) == 1
    assert shared < min(len(prompt) for prompt, _ in prompts)
    longest = min(len(prompt) for prompt, _ in prompts) - 1
    assert shared == longest or len({row.input_ids[shared] for row in rows}) > 1


def with_returns(reward, *rows):
    """Each row as pairs of the number of tokens of an answer and its return, with a prompt token before each answer."""
    made = []
    for answers in rows:
        logprobs = [logprob for count, _ in answers for logprob in [None, *([-1.0] * count)]]
        returns = [AnswerReturn(num_tokens=count, value=value) for count, value in answers]
        made.append(TrainingRow(token_ids=list(range(len(logprobs))), logprobs=logprobs, returns=returns))
    return TrainingRollout(reward=reward, rows=made)


def test_each_token_has_the_advantage_of_its_answer():
    """Rollouts of mean 2 and 0, so 1 is the mean that all answers are compared with, over all rows of a rollout."""
    groups = [TrainingGroup(id="a", rollouts=[with_returns(9, [(2, 3), (1, 0)], [(1, 3)]), rollout(0, [None, -1.0])])]
    rows = make_batch(groups, resolve(TrainingConfig(normalize_advantages=False))).rows
    assert [r.advantages for r in rows] == [[2.0, 2.0, -1.0], [2.0], [-1.0]]
    assert [len(r.targets) for r in rows] == [3, 1, 1]


def test_returns_belong_to_all_rows_of_a_rollout_and_to_all_sampled_tokens():
    """Returns of some rows or tokens only could be trained on in two ways."""
    with_them = with_returns(0, [(2, 3)]).rows[0]
    without = rollout(0, [None, -1.0]).rows[0]
    with pytest.raises(ValueError, match="1 of 2 rows have returns"):
        TrainingRollout(reward=0, rows=[with_them, without])
    with pytest.raises(ValueError, match="the returns cover 1 sampled tokens; 2 tokens have a logprob"):
        TrainingRow(token_ids=[1, 2, 3], logprobs=[None, -1, -1], returns=[AnswerReturn(num_tokens=1, value=0)])


def test_given_advantages_leave_no_room_for_returns():
    """A job that sends both is refused."""
    groups = [TrainingGroup(id="a", rollouts=[with_returns(0, [(1, 3)])])]
    groups[0].rollouts[0].advantage = 1.0
    with pytest.raises(UpdateRejected, match="rows have returns"):
        make_batch(groups, resolve(TrainingConfig(advantage="given")))
