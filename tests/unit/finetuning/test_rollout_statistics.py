from random import Random

import pytest

from fakes.run_records import rollout_record
from fakes.training_rows import row_of
from nat.finetuning import rollout_statistics as statistics
from nat.finetuning.rollout_statistics import MIN_REPEATS, ScoreSpread, score_spread, what_was_scored, what_was_trained
from nat.runs.rollouts import LeftOutCause


def said(example, output, reward, **fields):
    messages = [{"role": "user", "content": example}, {"role": "assistant", "content": output}]
    return rollout_record(example, output=output, reward=reward, **({"messages": messages, "num_calls": 1} | fields))


def answered(score, rollouts=4000, seed=0):
    """Rollouts of ten examples with five possible answers; `score` gets answer and random generator."""
    random = Random(seed)
    answers = [(str(random.randrange(10)), random.randrange(5)) for _ in range(rollouts)]
    return [said(example, str(answer), score(answer, random)) for example, answer in answers]


def test_a_score_of_the_answer_alone_has_no_noise():
    """Equal answers have equal scores, and the whole spread is between different ones."""
    spread = score_spread(answered(lambda answer, _: float(answer == 0)), what_was_scored)
    assert spread.noise_share == 0.0
    assert spread.depends_on_output


@pytest.mark.parametrize("noise", [0.3, 1.0, 2.0])
def test_the_noise_share_is_that_of_the_variances(noise):
    """A score of variance .16 with noise of a known variance has the share noise²/(noise² + .16)."""
    spread = score_spread(answered(lambda a, random: (a == 0) + random.gauss(0, noise)), what_was_scored)
    assert spread.noise_share == pytest.approx(noise**2 / (noise**2 + 0.16), abs=0.03)
    assert spread.depends_on_output


def test_a_score_of_chance_does_not_depend_on_the_output():
    """Over forty seeds, the F test calls at most four random scores dependent, and no dependent one random."""
    found = [
        score_spread(answered(lambda _, random: random.random(), 400, seed), what_was_scored).depends_on_output
        for seed in range(40)
    ]
    assert sum(found) <= 4
    assert all(
        score_spread(answered(lambda a, random: a + random.gauss(0, 2), 400, seed), what_was_scored).depends_on_output
        for seed in range(40)
    )


def test_too_few_repeats_leave_the_noise_unknown():
    """A variance of fewer than thirty values says little; unknown noise is no reason to doubt a score."""
    spread = ScoreSpread(compared=100, squares=25.0, repeats=MIN_REPEATS - 1, repeat_squares=7.0)
    assert spread.noise_share is None
    assert spread.depends_on_output


def test_sums_of_epochs_add_up():
    """Two epochs together have the degrees of freedom and the squares of both."""
    one, other = (answered(lambda answer, random: answer + random.random(), 300, seed) for seed in (1, 2))
    both = score_spread(one, what_was_scored) + score_spread(other, what_was_scored)
    assert both.repeats == sum(score_spread(part, what_was_scored).repeats for part in (one, other))
    assert 0 < both.noise_share < 0.1


def test_ids_of_tool_calls_do_not_make_answers_different():
    """Each call has a random id; its function and arguments are what was said."""

    def called(call_id, arguments):
        call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}
        return rollout_record(messages=[{"role": "assistant", "content": None, "tool_calls": [call]}])

    assert what_was_scored(called("1", "{}")) == what_was_scored(called("2", "{}"))
    assert what_was_scored(called("1", "{}")) != what_was_scored(called("1", '{"at": 1}'))


def test_rollouts_with_equal_rows_are_equal_in_training():
    """The rows have the trained tokens and the prompts before them."""
    one, same, other = (rollout_record(rows=[row_of(ids, [None, -0.1])]) for ids in ([1, 2], [1, 2], [1, 3]))
    assert what_was_trained(one) == what_was_trained(same) != what_was_trained(other)


def test_length_is_compared_among_rollouts_with_equally_many_calls():
    """An agent that calls its tool is longer and better, which is no reward for length."""
    tool = [said("q", "", float(calls - 1), num_calls=calls, completion_tokens=40 * calls) for calls in (1, 2) * 5]
    assert statistics.length_correlation(tool) is None
    longer = [said("q", "", float(tokens), completion_tokens=tokens) for tokens in range(10)]
    assert statistics.length_correlation(longer) == pytest.approx(1.0)
    assert statistics.tokens_by_outcome(longer) == (7.0, 2.0)
    assert statistics.tokens_by_outcome(tool) == (80.0, 40.0)


def test_truncation_is_judged_by_the_score_of_truncated_rollouts():
    """A limit that does not cost the score does no harm; where whole answers do no better, it is not the reason."""
    cut = [said("q", "", reward, truncated=True) for reward in (0.0, 0.0, 1.0, 0.0)]
    assert statistics.shares_at_lowest(cut) == (0.75, None)
    assert statistics.shares_at_lowest([*cut, said("q", "", 0.0), said("q", "", 0.5)]) == (0.75, 0.5)
    assert statistics.shares_at_lowest([said("q", "", 1.0)]) == (None, None)


def test_equal_outputs_are_counted_by_example():
    """An example that was played once has nothing to be equal to."""
    records = [said("a", "x", 1.0), said("a", "x", 0.0), said("b", "x", 1.0), said("b", "y", 1.0), said("c", "x", 1.0)]
    assert statistics.share_of_equal_outputs(records) == 0.5
    assert statistics.success_by_example(records) == {"a": 0.5, "b": 1.0, "c": 1.0}


def test_trained_tokens_are_a_share_of_all_sampled_ones():
    """Without token ids the share is not known; failed rollouts do not count."""
    row = row_of([1, 2, 3], [None, -0.1, -0.1])
    trained = said("a", "", 1.0, completion_tokens=8, rows=[row])
    failed = said("a", "", None, completion_tokens=90, left_out=LeftOutCause.FAILED)
    assert statistics.share_of_trained_tokens([trained, failed]) == 0.25
    assert statistics.share_of_trained_tokens([said("a", "", 1.0, completion_tokens=8)]) is None
    assert statistics.share_without_calls([trained, failed, said("b", "", 1.0, num_calls=0)]) == 0.5


def test_unseen_words_leave_the_example_itself_out():
    """The second share is that between the known examples; answers of the model do not count."""
    known = [said(text, "answer", 1.0) for text in ("add 1 2", "add 3 4")]
    assert statistics.unseen_words(known, known) == pytest.approx((2 / 3, 2 / 3))
    assert statistics.unseen_words([said("add 1 3", "other", 1.0)], known)[0] == 0.0
    assert statistics.unseen_words([said("sing a song", "answer", 1.0)], known)[0] == 1.0
    assert statistics.unseen_words([], []) == (None, None)
