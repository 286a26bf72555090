"""Signs of mistakes in the answers of an epoch."""

import pytest

from fakes.run_records import rollout_record
from fakes.training_rows import row_of
from nat.finetuning.answer_statistics import answer_metrics


def said(output, reward, expected="Rome", example="a", generation=0, **changes):
    return rollout_record(example, generation, output=output, reward=reward, expected=expected, **changes)


def test_a_right_answer_should_not_have_the_lowest_score():
    """Case, spaces and punctuation do not count; nor does an answer that only contains the expected one."""
    found = answer_metrics([said("rome.", 0.0), said("Rome", 0.0), said("Rome", 1.0), said("in Rome", 0.0)])
    assert found == {"reward/right_lowest": pytest.approx(2 / 3), "reward/right_unlike": pytest.approx(1 / 3)}


@pytest.mark.parametrize(
    "records",
    [
        [],
        [said("Rome", 1.0), said("Oslo", 0.0)],
        [said("Rome", 1.0), said("Rome", 1.0)],
        [said("", 0.0, expected="")],
        [said("Rome", 0.0), *[said("Oslo", 1.0)] * 30],
        [said("Rome", None, left_out="the workflow raised an error")],
    ],
    ids=["no rollouts", "right", "all right", "no expected answer", "once", "failed"],
)
def test_nothing_is_reported_where_nothing_is_odd(records):
    """A score that all have may be the highest one, unless it is 0."""
    assert answer_metrics(records) == {}


@pytest.mark.parametrize(
    ("prompt", "reward", "expected"),
    [("He lives in Rome.", 1.0, 1.0), ("Where?", 1.0, None), ("Romeo?", 1.0, None), ("In Rome", 0.0, None)],
)
def test_an_answer_in_the_prompt_counts_where_it_is_always_found(prompt, reward, expected):
    """As a word, in what comes before the first answer."""
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": "Rome"}]
    records = [said("x", reward, generation=n, messages=messages) for n in range(2)]
    records.append(said("x", 1.0 - reward, example="b", expected="Oslo"))
    found = answer_metrics(records).get("rollout/answer_shown")
    assert found == (None if expected is None else expected / 2)


@pytest.mark.parametrize(("reward", "share"), [(0.0, None), (0.4, None), (1.0, 1.0)])
def test_a_score_that_all_rollouts_have_counts_as_solved_from_one_on(reward, share):
    """Nothing higher was seen, so 0 for all is not the highest score: such examples are not solved."""
    messages = [{"role": "user", "content": "He lives in Rome."}]
    records = [said("x", reward, generation=n, messages=messages) for n in range(2)]
    assert answer_metrics(records).get("rollout/answer_shown") == share


def test_an_output_that_does_not_follow_the_model_is_seen():
    """Different rows, one output."""
    rows = [row_of([1, last], [None, -0.5]) for last in (2, 3)]
    alone = [said("fixed", 0.0, generation=n, rows=[row]) for n, row in enumerate(rows)]
    assert answer_metrics(alone) == {"rollout/output_alone": 1.0}
    assert answer_metrics([alone[0], alone[0]]) == {}


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ("Error: no such city", True),
        ("ValueError('x')", True),
        ('{"error": "refused"}', True),
        ("Traceback (most recent call last):", True),
        ("No errors found", False),
        ("12 degrees", False),
    ],
)
def test_results_of_tools_that_begin_as_an_error_are_counted(result, failed):
    """In prose, as the name of an exception, or as the first key of JSON."""
    record = said("x", 1.0, messages=[{"role": "tool", "content": result}])
    assert answer_metrics([record]).get("rollout/tool_errors", 0.0) == float(failed)


@pytest.mark.parametrize(("stops", "share"), [(["om"], 0.5), (["\n"], None), ([], None)])
def test_a_stop_string_inside_the_expected_answer_cuts_it_off(stops, share):
    """One that is no part of it, such as a line's end, does no harm."""
    records = [said("R", 0.5, stopped_by=stops), said("x", 0.0)]
    assert answer_metrics(records).get("rollout/stopped_inside") == share


def test_calls_that_could_not_be_read_are_counted_by_cause():
    """No format is missing where some call was read, since the usual one reads them."""
    lost = [said("x", 0.0, lost_calls={"malformed": 2, "no_format": 1}), said("y", 1.0, lost_calls={"no_format": 3})]
    assert {name: count for name, count in answer_metrics(lost).items() if "lost" in name} == {
        "rollout/lost_calls_malformed": 2.0,
        "rollout/lost_calls_no_format": 4.0,
    }
    read = said("z", 1.0, messages=[{"role": "assistant", "tool_calls": [{}]}])
    assert "rollout/lost_calls_no_format" not in answer_metrics([*lost, read])
