import pytest

from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.errors import DatasetError
from nat.eval.dataset import eval_items
from nat.eval.expected import check_expected_answers, misspelt_answers
from nat.plugins.evaluators.exact_match import ExactMatchConfig
from nat.plugins.evaluators.json_path_score import JsonPathScoreConfig
from nat.plugins.evaluators.llm_judge import LLMJudgeConfig
from nat.plugins.evaluators.numeric_closeness import NumericClosenessConfig


def check(rows, evaluator, **structure):
    config = DatasetBaseConfig(file_path="data.json", structure=structure)
    check_expected_answers(eval_items(rows, config, source="data.json"), config, {"judge": evaluator})


WITHOUT = [{"question": "a", "label": "1"}, {"question": "b", "label": "2"}]


@pytest.mark.parametrize("evaluator", [ExactMatchConfig(), NumericClosenessConfig()])
def test_evaluators_that_compare_need_an_answer(evaluator):
    """All rows would be left without a score, one by one, after the agent had played them."""
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
def test_other_evaluators_say_nothing(evaluator):
    """They score the answer by itself; those of plug-ins need not say."""
    check(WITHOUT, evaluator)


def test_a_judge_whose_prompt_shows_the_answer_needs_it():
    """The user wrote the prompt for a dataset that has it."""
    with pytest.raises(DatasetError, match=r"eval\.evaluators\.judge cannot score without"):
        check(WITHOUT, LLMJudgeConfig(llm_name="m", prompt="Is {answer} the same as {expected}?"))


def test_an_empty_column_is_no_answer_but_a_single_empty_cell_is_one_rows_business():
    """The row that has none fails alone, and is counted."""
    with pytest.raises(DatasetError, match="the column 'answer' is empty in all 2 rows"):
        check([row | {"answer": None} for row in WITHOUT], ExactMatchConfig())
    check([WITHOUT[0] | {"answer": "1"}, WITHOUT[1]], ExactMatchConfig())


def test_whole_rows_have_no_answer():
    """With `structure.disable` every answer would be compared with an empty text, and score 0."""
    with pytest.raises(DatasetError, match=r"structure\.disable hands the whole row to the workflow"):
        check([row | {"answer": "1"} for row in WITHOUT], ExactMatchConfig(), disable=True)


@pytest.mark.parametrize(
    ("column", "structure", "warned"),
    [("anwser", {}, True), ("answers", {}, True), ("label", {}, False), ("anwser", {"disable": True}, False)],
)
def test_a_column_that_is_nearly_the_answers_is_named(column, structure, warned):
    """An evaluator of a plug-in need not say that it compares; with nothing to compare, every reward is 0."""
    config = DatasetBaseConfig(file_path="data.json", structure=structure)
    rows = [{"id": "1", "question": "a", column: "1"}]
    said = misspelt_answers(eval_items(rows, config, source="data.json"), config)
    assert (said is not None) == warned
    if said:
        assert said.startswith(
            f"data.json: there is no column 'answer', so evaluators get no expected answer. Did you mean '{column}'?"
        )
