"""Reading datasets with the loaders of their types."""

from dataclasses import dataclass

import pytest

from nat.builder.workflow_builder import WorkflowBuilder
from nat.data_models.dataset_handler import (
    EvalDatasetCsvConfig,
    EvalDatasetJsonConfig,
    EvalDatasetJsonlConfig,
)
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvalInput, EvalInputItem
from nat.errors import DatasetError
from nat.eval.dataset import eval_items
from nat.eval.dataset_source import load_items, rows_of
from nat.registry.discovery import discover_components


@pytest.fixture
async def builder():
    discover_components()
    async with WorkflowBuilder() as builder:
        yield builder


@pytest.mark.parametrize(("name", "config"), [("rows.csv", "json"), ("rows.xlsx", "jsonl"), ("rows.json", "csv")])
async def test_a_file_of_another_format_is_told_by_its_name(tmp_path, builder, name, config):
    """Whatever its reader makes of it, the error says which format the name means."""
    (tmp_path / name).write_bytes(b"PK\3\4\xff" if name.endswith("xlsx") else b'[{"question"; "1"}]\n1,2\n')
    wrong = {"json": EvalDatasetJsonConfig, "jsonl": EvalDatasetJsonlConfig, "csv": EvalDatasetCsvConfig}[config]
    with pytest.raises(DatasetError, match=rf"name says \.{name.partition('.')[2]}: .*_type"):
        await load_items(wrong(file_path=str(tmp_path / name)), builder)


CONFIG = DatasetBaseConfig(file_path="data.hub", structure={"question_key": "q", "answer_key": "a"}, id_key="n")


def rows(loaded):
    return rows_of(loaded, CONFIG, source="data.hub")


def test_a_data_frame_of_pandas_is_a_table():
    """Its numbers become Python's, so they keep their type in reports, and its empty cells become None."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"n": [1, 2], "q": ["x", None], "a": [0.5, None], "tags": [["t"], []]})
    found = rows(frame)
    assert found == [{"n": 1, "q": "x", "a": 0.5, "tags": ["t"]}, {"n": 2, "q": None, "a": None, "tags": []}]
    assert type(found[0]["n"]) is int


def test_the_items_of_an_eval_input_are_rows():
    """They keep their id, question, answer and further columns, under the dataset's names."""
    item = EvalInputItem(id=7, input_obj="x", expected_output_obj="y", full_dataset_entry={"level": 3})
    [found] = eval_items(rows(EvalInput(eval_input_items=[item])), CONFIG, source="data.hub")
    assert (found.id, found.input_obj, found.expected_output_obj) == (7, "x", "y")
    assert found.full_dataset_entry["level"] == 3


@dataclass
class Question:
    text: str


@pytest.mark.parametrize(
    ("loaded", "seen"),
    [
        (None, "the dataset loader returned NoneType"),
        ("q,a", "the dataset loader returned str"),
        ({"q": "x"}, "the dataset loader returned dict"),
        ([{"q": "x"}, Question("x")], "row 2 of the dataset loader is Question"),
    ],
)
def test_anything_else_is_named(loaded, seen):
    """The error says what the loader returned and what to return."""
    with pytest.raises(DatasetError, match=seen):
        rows(loaded)
