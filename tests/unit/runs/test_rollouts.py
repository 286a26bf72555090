from fakes.run_records import rollout_record
from nat.runs.rollouts import LeftOutCause, RolloutTally, scoring_spans, tally


def test_a_tally_counts_causes_errors_and_names():
    """A tally of causes, errors and names is made in one pass over a generator."""
    records = [
        rollout_record("a", functions={"f": 2}, models={"m": 3}),
        rollout_record("b", functions={"f": 1, "g": 1}, left_out=LeftOutCause.NO_REWARD_DIFFERENCE),
        rollout_record("c", left_out=LeftOutCause.FAILED, error="E: x", reward=None),
        rollout_record("d", left_out=LeftOutCause.NO_SCORE, error="E: x", reward=None),
        rollout_record("e", left_out=LeftOutCause.NO_LOGPROBS),
    ]
    counts = tally(record for record in records)
    assert counts.num_rollouts == 5
    assert counts.functions == {"f": 3, "g": 1}
    assert counts.models == {"m": 3}
    assert list(map(str, counts.failures)) == [
        "1 x the workflow raised an error: E: x",
        "1 x the evaluator gave no score: E: x",
        "1 x the server sent no logprobs",
    ]


def test_left_out_by_choice_is_not_unusable():
    """A group of equal rewards could be trained on; a rollout without a score could not."""
    records = [rollout_record(left_out=cause) for cause in LeftOutCause]
    counts = tally(records)
    assert counts.num_usable == 2
    assert counts.num_failed == 5
    assert RolloutTally().num_usable == 0


def test_scoring_that_overlaps_is_one_span():
    """Pauses of less than a tenth of a second are none; times are to a millisecond."""
    spans = [(5.0, 6.0), (1.00004, 2.0), (1.5, 1.7), (2.05, 3.0), None]
    assert scoring_spans(rollout_record(scoring=span) for span in spans) == [(1.0, 3.0), (5.0, 6.0)]
