"""Reading datasets: files once, functions each time."""

import json
import os

import pytest

from nat.builder.workflow_builder import WorkflowBuilder
from nat.data_models.dataset_handler import EvalDatasetCustomConfig, EvalDatasetJsonConfig
from nat.errors import DatasetError
from nat.eval.dataset_source import items_of
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
