"""Reading datasets: files once, functions each time."""

import json
import os
from dataclasses import dataclass

import pytest

from nat.builder.workflow_builder import WorkflowBuilder
from nat.data_models.dataset_handler import (
    EvalDatasetCsvConfig,
    EvalDatasetCustomConfig,
    EvalDatasetJsonConfig,
    EvalDatasetJsonlConfig,
)
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvalInput, EvalInputItem
from nat.errors import DatasetError
from nat.eval.dataset import eval_items
from nat.eval.dataset_source import items_of, load_items, rows_of
from nat.registry.discovery import discover_components


def drawn(file_path):
    """A loader that gives another row each time."""
    return [{"id": os.urandom(8).hex(), "question": "1"}]


@pytest.fixture
async def builder():
    discover_components()
    async with WorkflowBuilder() as builder:
        yield builder


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"id": "a", "question": "1", "answer": "1"}]))
    return path


async def test_a_file_is_read_once_while_it_stays_as_it_is(file, builder):
    """Each pass over the data asks for it; a file that changes, or goes, is noticed."""
    config, known = EvalDatasetJsonConfig(file_path=str(file)), {}
    first = await items_of(config, builder, known)
    assert await items_of(config, builder, known) is first
    other = config.model_copy(update={"id_key": "question"})
    assert [item.id for item in await items_of(other, builder, known)] == ["1"]
    assert await items_of(config, builder, known) is first
    file.write_text(json.dumps([{"id": "b", "question": "22", "answer": "1"}]))
    assert [item.id for item in await items_of(config, builder, known)] == ["b"]
    file.unlink()
    with pytest.raises(DatasetError, match="does not exist"):
        await items_of(config, builder, known)


async def test_a_function_is_asked_each_time(file, builder):
    """It may draw its rows."""
    config, known = EvalDatasetCustomConfig(file_path=str(file), function=f"{__name__}.drawn"), {}
    first, second = [await items_of(config, builder, known) for _ in range(2)]
    assert first[0].id != second[0].id


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
