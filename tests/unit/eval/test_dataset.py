"""Rows become items with ids, keys and filters; errors name rows."""

import json

import pytest

from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.errors import DatasetError
from nat.eval.dataset import (
    answer_column_warning,
    check_expected_answers,
    copies,
    eval_items,
    repeat_items,
)
from nat.plugins.evaluators.llm_judge import LLMJudgeConfig
from nat.plugins.evaluators.scores import ExactMatchConfig, JsonPathScoreConfig, NumericClosenessConfig


def config(**fields) -> DatasetBaseConfig:
    return DatasetBaseConfig.model_validate(fields)


def items(rows, **fields):
    return eval_items(rows, config(**fields), source="data.json")


def row(**columns):
    return {"question": "q", **columns}


def test_columns_get_their_meaning():
    """Question and answer are in the default columns, and the whole row is kept."""
    entry = {"id": "x", "question": "2+2", "answer": "0042", "level": 3}
    [item] = items([entry])
    assert (item.id, item.input_obj, item.expected_output_obj) == ("x", "2+2", "0042")
    assert item.full_dataset_entry == entry
    assert item.output_obj is None


def test_disabled_structure_gives_the_row_as_json_text():
    """The whole row is the question as JSON text, with unescaped characters, and there is no expected answer."""
    [item] = items([{"id": "1", "board": ["ä"]}], structure={"disable": True})
    assert json.loads(item.input_obj) == {"id": "1", "board": ["ä"]}
    assert "ä" in item.input_obj
    assert item.expected_output_obj == ""


def test_expected_steps_are_read():
    """Expected steps may be a list or JSON text; other values are an error."""
    node = {"function_id": "f", "function_name": "f"}
    step = {"parent_id": "root", "function_ancestry": node, "payload": {"event_type": "TOOL_END", "name": "search"}}
    as_list, as_text = items(
        [row(steps=[step]), row(steps=json.dumps([step]))], structure={"expected_trajectory_key": "steps"}
    )
    assert [s.name for s in as_list.expected_trajectory] == ["search"]
    assert [s.name for s in as_text.expected_trajectory] == ["search"]
    with pytest.raises(DatasetError, match=r"data\.json, row 1: the expected steps are not steps"):
        items([row(expected_intermediate_steps=[{"name": "search"}])])


@pytest.mark.parametrize("value", ["0042", "1e3", 7, 10**30, 0.5, "中"])
def test_ids_stay_as_they_are(value):
    """An id is the dataset's value: a text is never parsed as a number, and a number never becomes text."""
    found = items([row(id=value)])[0].id
    assert (found, type(found)) == (value, type(value))


def test_without_an_id_column_the_row_number_is_the_id():
    """Rows are numbered from 1, as in errors; a filter does not renumber them."""
    rows = [row(level=1), row(level=2), row(level=3)]
    assert [item.id for item in items(rows)] == ["1", "2", "3"]
    assert [item.id for item in items(rows, filter={"denylist": {"field": {"level": [2]}}})] == ["1", "3"]


def test_duplicate_ids_name_their_rows():
    """Scores belong to ids, so a duplicate is an error, even of a number and a text."""
    rows = [row(id="a"), row(id=7), row(id="a"), row(id="7"), row(id="b")]
    with pytest.raises(DatasetError, match="'a' in rows 1 and 3; '7' in rows 2 and 4"):
        items(rows)


@pytest.mark.parametrize("hole", [{}, {"id": None}, {"id": " "}])
def test_a_row_without_id_among_rows_with_ids_is_named(hole):
    """A row with an empty id would get another row's scores."""
    with pytest.raises(DatasetError, match="'id' is empty in row 2"):
        items([row(id="a"), row(**hole)])


@pytest.mark.parametrize("hole", [{}, {"question": None}, {"question": "  "}])
def test_rows_without_a_question_are_an_error(hole):
    """Rows are not dropped silently."""
    with pytest.raises(DatasetError, match="'question' is empty in row 2"):
        items([row(), {"answer": "x", **hole}])


def test_a_key_that_is_no_column_is_an_error_with_a_suggestion():
    """A configured key must be a column; the error lists the columns."""
    with pytest.raises(
        DatasetError, match=r"question_key 'questoin': no such column. Did you mean 'question'\?"
    ) as caught:
        items([row(answer="a")], id_key="nr", structure={"question_key": "questoin", "answer_key": "gold"})
    assert "id_key 'nr'" in str(caught.value)
    assert "structure.answer_key 'gold'" in str(caught.value)
    assert "'answer', 'question'" in str(caught.value)
    with pytest.raises(DatasetError, match=r"answers to imitate: .*dataset_traj_builder"):
        items([{"messages": []}])


ROWS = [row(id="a", level=1, topic="algebra"), row(id="b", level=2, topic="geometry"), row(id="c", level=2, topic=None)]


@pytest.mark.parametrize(
    ("lists", "kept"),
    [
        ({"allowlist": {"field": {"level": [2]}}}, "bc"),
        ({"allowlist": {"field": {"level": ["2"]}}}, "bc"),
        ({"allowlist": {"field": {"topic": ["alg*", "geo?etry"]}}}, "ab"),
        ({"allowlist": {"field": {"topic": [None]}}}, "c"),
        ({"allowlist": {"field": {"level": [2], "topic": ["*"]}}}, "b"),
        ({"denylist": {"field": {"topic": ["geo*"]}}}, "ac"),
        ({"denylist": {"field": {"level": [1], "topic": ["geometry"]}}}, "c"),
        ({"allowlist": {"field": {"level": [2]}}, "denylist": {"field": {"id": ["b"]}}}, "c"),
    ],
)
def test_filters_select_rows(lists, kept):
    """The allow list keeps rows that match all its columns; the deny list drops those that match any."""
    assert "".join(item.id for item in items(ROWS, filter=lists)) == kept


def test_an_empty_selection_or_unknown_column_is_an_error():
    """Both are mistakes that would give an empty evaluation."""
    with pytest.raises(DatasetError, match="the filter leaves none of 3 rows"):
        items(ROWS, filter={"allowlist": {"field": {"level": [9]}}})
    with pytest.raises(DatasetError, match=r"filter on 'levle': no such column. Did you mean 'level'\?"):
        items(ROWS, filter={"denylist": {"field": {"levle": [1]}}})


def check(rows, evaluator, **structure):
    config = DatasetBaseConfig(file_path="data.json", structure=structure)
    check_expected_answers(eval_items(rows, config, source="data.json"), config, {"judge": evaluator})


WITHOUT = [{"question": "a", "label": "1"}, {"question": "b", "label": "2"}]


@pytest.mark.parametrize("evaluator", [ExactMatchConfig(), NumericClosenessConfig()])
def test_evaluators_that_compare_need_an_answer(evaluator):
    """Without answers the evaluator would fail for each row after the rollouts, so it is an error before."""
    with pytest.raises(DatasetError, match=r"there is no column 'answer'\. Columns: label, question"):
        check(WITHOUT, evaluator)
    check(WITHOUT, evaluator, answer_key="label")


@pytest.mark.parametrize(
    "evaluator",
    [
        JsonPathScoreConfig(),
        LLMJudgeConfig(llm_name="m"),
        LLMJudgeConfig(llm_name="m", prompt="{answer}"),
        EvaluatorBaseConfig(),
    ],
)
def test_other_evaluators_need_no_answer(evaluator, caplog):
    """Evaluators that need no expected answer, and plug-ins that declare nothing, raise no error."""
    check(WITHOUT, evaluator)
    assert caplog.text == ""


def test_an_answer_key_that_no_row_fills_is_an_error_and_one_that_some_lack_a_warning():
    """A key that the user set is meant; rows without an answer are counted, whichever evaluator reads them."""
    config = DatasetBaseConfig(file_path="data.json", structure={"answer_key": "answer"})
    with pytest.raises(DatasetError, match=r"structure\.answer_key 'answer' is empty in all 2 rows"):
        eval_items([row | {"answer": None} for row in WITHOUT], config, source="data.json")
    items = eval_items([WITHOUT[0] | {"answer": "1"}, WITHOUT[1]], config, source="data.json")
    assert "1 of 2 rows have no 'answer' (ids: " in (answer_column_warning(items, config) or "")
    assert answer_column_warning(items[:1], config) is None


@pytest.mark.parametrize(
    ("column", "structure", "warned"),
    [
        ("anwser", {}, True),
        ("answers", {}, True),
        ("label", {}, True),
        ("city", {}, False),
        ("anwser", {"disable": True}, False),
    ],
)
def test_a_column_with_a_similar_name_is_suggested(column, structure, warned):
    """A plug-in's evaluator may not declare that it compares; without answers its rewards would all be 0."""
    config = DatasetBaseConfig(file_path="data.json", structure=structure)
    rows = [{"id": "1", "question": "a", column: "1"}]
    said = answer_column_warning(eval_items(rows, config, source="data.json"), config)
    assert (said is not None) == warned
    if said:
        assert said.startswith(
            f"data.json: there is no column 'answer', so evaluators get no expected answer. Did you mean '{column}'?"
        )


def test_copies_of_a_row_are_found():
    """All but the id must be equal; the repetitions that `reps` makes of a row are one example."""
    rows = [{"id": n, "question": f"q{n % 2}", "answer": "a", "level": 1} for n in range(5)]
    rows[4]["level"] = 2
    assert copies(items(rows)) == {"2": "0", "3": "1"}
    assert copies(repeat_items(items(rows), 2)) == {"2": "0", "3": "1"}


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": n, "question": "X"} for n in range(4)],
        [{"id": n, "question": f"q{n % 2}", "answer": None} for n in range(4)],
        [{"id": n, "question": "q", "answer": "a"} for n in range(4)],
        [{"id": n, "question": "q", "answer": str(n)} for n in range(4)],
    ],
    ids=["games", "no answers", "one question", "other answers"],
)
def test_rows_that_may_differ_are_no_copies(rows):
    """The id may seed a game, and where one question is all there is, every rollout of it counts."""
    assert copies(items(rows)) == {}
