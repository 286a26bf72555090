"""Differences of tokens find their rollouts again."""

import struct

from fakes.run_records import rollout_record
from fakes.training_rows import row_of
from nat.runs.rollouts import LeftOutCause
from nat.runs.token_mismatch import RowMismatch, by_example, in_rows, of_rollout, taught_rows

ONE, TWO, THREE = (row_of([1, token, 9], [None, -1.0 * token, -0.5]) for token in (2, 3, 4))


def packed(*values):
    return struct.pack(f"<{len(values)}e", *values)


def test_a_jobs_tokens_are_split_by_its_rows():
    """Bytes of another length are of another job."""
    found = in_rows([ONE, TWO], packed(1, 2, 3, 4))
    assert found == [RowMismatch(ONE, packed(1, 2)), RowMismatch(TWO, packed(3, 4))]
    assert in_rows([ONE], packed(1)) == in_rows([ONE], None) == [RowMismatch(ONE)]


def test_a_rollout_gets_its_own_differences():
    """Whatever the order of the job; rollouts that were not trained have none, and unknown rows no number."""
    left_out = rollout_record(generation=1, rows=[TWO], left_out=LeftOutCause.NO_REWARD_DIFFERENCE)
    records = [rollout_record(generation=2, rows=[THREE]), rollout_record(generation=0, rows=[ONE, TWO]), left_out]
    examples = by_example(records, [RowMismatch(THREE, packed(5, 6)), RowMismatch(ONE, packed(1, 2))])
    assert examples.keys() == {"a"}
    found = [of_rollout(records, record, examples["a"]) for record in records]
    assert found == [[5, 6], [1, 2, None, None], []]
    assert of_rollout(records[:1], records[0], examples["a"]) == []


def test_an_example_without_any_difference_is_absent():
    """So is every one of a backend that reports none."""
    records = [rollout_record(rows=[ONE]), rollout_record("b", rows=[TWO])]
    assert by_example(records, []) == by_example(records, [RowMismatch(ONE)]) == {}
    assert by_example(records, [RowMismatch(TWO, packed(1, 2))]).keys() == {"b"}


def test_rows_of_a_teacher_are_those_of_the_rollout():
    """The job's rows have its log probabilities, too."""
    scored = taught(ONE)
    assert by_example([rollout_record(rows=[ONE])], [RowMismatch(scored, packed(1, 2))]) == {"a": packed(1, 2)}


def test_what_a_teacher_has_scored_is_known_by_rollout():
    """With or without differences; what was not sent or scored is left as it is."""
    left_out = rollout_record("b", rows=[TWO], left_out=LeftOutCause.NO_REWARD_DIFFERENCE)
    records = [rollout_record(generation=1, rows=[TWO, ONE]), rollout_record(rows=[THREE]), left_out]
    sent = [RowMismatch(taught(ONE)), RowMismatch(THREE, packed(1, 2))]
    assert taught_rows(records, sent) == {("a", 1): [TWO, taught(ONE)]}
    assert taught_rows(records, []) == {}


def taught(row):
    span = row.spans[0].model_copy(update={"teacher_logprobs": [-1.0, None]})
    return row.model_copy(update={"spans": [span]})
