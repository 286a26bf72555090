"""Report files are complete, readable as data, and use the dataset's keys."""

import json
import math
from pathlib import Path

import pytest

from nat.data_models.evaluate import DatasetBaseConfig, EvalDatasetStructureConfig
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    InvocationNode,
    StreamEventData,
)
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import ConfigError, EvaluationError
from nat.eval.report import check_writable, remove_reports, safe_name, workflow_rows, write_json

KEYS = DatasetBaseConfig(id_key="id", structure=EvalDatasetStructureConfig())


def step(event_type: IntermediateStepType, output=None) -> IntermediateStep:
    payload = IntermediateStepPayload(event_type=event_type, name="n", data=StreamEventData(output=output))
    return IntermediateStep(
        parent_id="root", function_ancestry=InvocationNode(function_id="f", function_name="f"), payload=payload
    )


def item(item_id="a", **fields) -> EvalInputItem:
    return EvalInputItem(
        **{"id": item_id, "input_obj": "q", "expected_output_obj": "0042", "output_obj": "42"} | fields
    )


def test_rows_carry_the_datasets_keys():
    """Question, answer, output and steps have the dataset's keys."""
    structure = EvalDatasetStructureConfig(
        question_key="prompt",
        answer_key="gold",
        generated_answer_key="out",
        trajectory_key="steps",
        expected_trajectory_key="expected",
    )
    [row] = workflow_rows([item()], [], DatasetBaseConfig(id_key="nr", structure=structure))
    assert row == {"nr": "a", "prompt": "q", "gold": "0042", "expected": [], "out": "42", "steps": []}


def test_a_failed_item_has_an_error_and_no_answer():
    """The report has no empty answer for a failed rollout."""
    failure = RolloutFailure(item_id="a", kind="raised", type="KeyError", message="'x'")
    [row] = workflow_rows([item(output_obj=None)], [failure], KEYS)
    assert row["error"] == "KeyError: 'x'"
    assert "generated_answer" not in row


def test_steps_that_end_a_call_are_reported():
    """Only LLM and tool answers are reported; other steps repeat their content."""
    steps = [
        step(kind)
        for kind in (IntermediateStepType.LLM_START, IntermediateStepType.LLM_END, IntermediateStepType.TOOL_END)
    ]
    [row] = workflow_rows([item(trajectory=steps)], [], KEYS)
    assert [s.event_type for s in row["intermediate_steps"]] == ["LLM_END", "TOOL_END"]


def test_files_are_json_whatever_the_values_are(tmp_path: Path):
    """Other objects and NaN become text, and unicode stays readable."""
    path = write_json(
        tmp_path / "deep" / "a.json",
        {"o": object, "n": math.nan, "u": "中", "s": step(IntermediateStepType.LLM_END, {1j})},
    )
    value = json.loads(path.read_text("utf-8"))
    assert value["o"] == "<class 'object'>"
    assert value["n"] == "NaN"
    assert "中" in path.read_text("utf-8")
    assert value["s"]["payload"]["data"]["output"] == ["1j"]


@pytest.mark.parametrize("name", ["../evil", "a/b", ".hidden", "", "a" * 200])
def test_an_invalid_file_name_is_refused(name: str):
    """An evaluator's name becomes a path, so it must be one component."""
    with pytest.raises(EvaluationError, match="cannot name a report file"):
        safe_name(name)


def test_only_reports_are_removed(tmp_path: Path):
    """Cleaning up deletes only an evaluation's own files."""
    for name in ("workflow_output.json", "score_output.json", "config_effective.yml", "notes.txt", "data.json"):
        (tmp_path / name).write_text("x")
    remove_reports(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.json", "notes.txt"]


def test_a_file_in_the_way_is_named(tmp_path):
    """The error names the file in the way, not only the folder."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file is a file, so"):
        check_writable(tmp_path / "file" / "below", "eval.general.output_dir")
