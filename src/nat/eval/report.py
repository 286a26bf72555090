"""The report files of an evaluation; each is written whole or not at all."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from nat.data_models.evaluate import EvalDatasetStructureConfig
from nat.data_models.evaluator import EvalInputItem, EvalOutput
from nat.data_models.intermediate_step import IntermediateStepType
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import EvaluationError
from nat.eval.failures import FAILURES_NAME
from nat.secrets import redact_json
from nat.wire.text import without_surrogates

WORKFLOW_OUTPUT = "workflow_output.json"
CONFIG_EFFECTIVE = "config_effective.yml"
CONFIG_METADATA = "config_metadata.json"

_REPORTED_STEPS = (IntermediateStepType.LLM_END, IntermediateStepType.TOOL_END)
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True)
class RowKeys:
    """The dataset's own names for what a row of the report holds."""

    id_key: str
    structure: EvalDatasetStructureConfig


def workflow_rows(
    items: Sequence[EvalInputItem], failures: Sequence[RolloutFailure], keys: RowKeys
) -> Iterator[dict[str, Any]]:
    """One row per item under the dataset's keys, so that it can be read as a dataset again; pure.

    Of the steps, those that end an LLM or tool call are kept. A failed item has no answer, but an `error`.
    """
    errors = {failure.item_id: failure for failure in failures}
    names = keys.structure
    for item in items:
        failure = errors.get(item.id)
        answer = {names.generated_answer_key: item.output_obj} if failure is None else {"error": str(failure)}
        yield {
            keys.id_key: item.id,
            **_question(item, names),
            **answer,
            names.trajectory_key: [step for step in item.trajectory if step.event_type in _REPORTED_STEPS],
        }


def evaluator_file(name: str) -> str:
    """The file name of an evaluator's scores; EvaluationError if the name cannot be a file's."""
    return f"{safe_name(name)}_output.json"


def safe_name(name: str) -> str:
    """The name itself, if it is one path component and not a hidden one."""
    if not _SAFE_NAME.fullmatch(name):
        raise EvaluationError(
            f"'{name}' cannot name a report file", hint="Use letters, digits, '_', '-' and '.', up to 128 of them."
        )
    return name


def scores(output: EvalOutput) -> dict[str, Any]:
    """An evaluator's scores as they are written, with the number of items that have none."""
    return {
        "average_score": output.average_score,
        "unscored": sum(item.score is None for item in output.eval_output_items),
        "eval_output_items": output.eval_output_items,
    }


def write_json(path: Path, value: Any) -> Path:
    """Replace the file by `value` without secrets; what JSON does not know becomes text, subclasses keep fields."""
    try:
        text = to_json(value, indent=2, fallback=repr, inf_nan_mode="strings")
    except (PydanticSerializationError, UnicodeEncodeError):
        text = to_json(without_surrogates(value), indent=2, fallback=repr, inf_nan_mode="strings")
    return write_bytes(path, redact_json(text.decode(), indent=2).encode() + b"\n")


def write_bytes(path: Path, data: bytes) -> Path:
    """Replace the file by `data`: readers see the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def remove_reports(folder: Path) -> None:
    """Delete the files that an evaluation writes, and nothing else that may lie in the folder."""
    for pattern in ("*_output.json", CONFIG_EFFECTIVE, CONFIG_METADATA, FAILURES_NAME):
        for path in folder.glob(pattern):
            path.unlink()


def _question(item: EvalInputItem, names: EvalDatasetStructureConfig) -> dict[str, Any]:
    """What was asked: the row itself where it was the question, else the columns that had a meaning."""
    if names.disable:
        return dict(item.full_dataset_entry)
    return {
        names.question_key: item.input_obj,
        names.answer_key: item.expected_output_obj,
        names.expected_trajectory_key: item.expected_trajectory,
    }
