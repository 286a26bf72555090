"""Write the report files of an evaluation; each is written completely or not at all."""

import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from nat.config.load import dump_resolved
from nat.data_models.config import Config
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluate_runtime import EvaluationRunConfig, EvaluationRunOutput
from nat.data_models.evaluator import EvalInputItem, EvalOutput
from nat.data_models.intermediate_step import IntermediateStepType
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import ConfigError, EvaluationError
from nat.eval.failures import FAILURES_NAME, failures_of, failures_text
from nat.files import write_text
from nat.secrets import redact, redact_json
from nat.wire.json import without_surrogates

WORKFLOW_OUTPUT = "workflow_output.json"
CONFIG_EFFECTIVE = "config_effective.yml"
CONFIG_METADATA = "config_metadata.json"

_REPORTED_STEPS = (IntermediateStepType.LLM_END, IntermediateStepType.TOOL_END)
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def workflow_rows(
    items: Sequence[EvalInputItem], failures: Sequence[RolloutFailure], dataset: DatasetBaseConfig
) -> Iterator[dict[str, Any]]:
    """One row per item under the dataset's keys, so that the report can be read as a dataset; pure.

    Only steps that end an LLM or tool call are included. A failed item has an `error` instead of an answer.
    """
    errors = {failure.item_id: failure for failure in failures}
    names = dataset.structure
    for item in items:
        failure = errors.get(str(item.id))
        answer = {names.generated_answer_key: item.output_obj} if failure is None else {"error": str(failure)}
        question = {
            names.question_key: item.input_obj,
            names.answer_key: item.expected_output_obj,
            names.expected_trajectory_key: item.expected_trajectory,
        }
        yield {
            dataset.id_key: item.id,
            **(item.full_dataset_entry if names.disable else question),  # the row itself may have been the question
            **answer,
            names.trajectory_key: [step for step in item.trajectory if step.event_type in _REPORTED_STEPS],
        }


def safe_name(name: str) -> str:
    """The name, if it is a valid file name; EvaluationError otherwise."""
    if not _SAFE_NAME.fullmatch(name):
        raise EvaluationError(
            f"'{name}' cannot name a report file", hint="Use letters, digits, '_', '-' and '.', up to 128 of them."
        )
    return name


def scores(output: EvalOutput) -> dict[str, Any]:
    """An evaluator's scores for its report, with the number of items without a score."""
    return {
        "average_score": output.average_score,
        "unscored": sum(item.score is None for item in output.eval_output_items),
        "eval_output_items": output.eval_output_items,
    }


def write_json(path: Path, value: Any) -> Path:
    """Replace the file by `value` as JSON without secrets; unknown types become text."""
    try:
        text = to_json(value, indent=2, fallback=repr, inf_nan_mode="strings")
    except (PydanticSerializationError, UnicodeEncodeError):
        text = to_json(without_surrogates(value), indent=2, fallback=repr, inf_nan_mode="strings")
    write_text(path, redact_json(text.decode(), indent=2) + "\n")
    return path


def remove_reports(folder: Path) -> None:
    """Delete the files that an evaluation writes, and no others."""
    for pattern in ("*_output.json", CONFIG_EFFECTIVE, CONFIG_METADATA, FAILURES_NAME):
        for path in folder.glob(pattern):
            path.unlink()


def write_reports(
    output: EvaluationRunOutput,
    run: EvaluationRunConfig,
    config: Config,
    dataset: DatasetBaseConfig,
    job_id: str | None = None,
) -> EvaluationRunOutput:
    """Write all reports, and return the output with their paths; `job_id` names a sub-folder."""
    general = config.eval.general
    folder = general.report_dir if job_id is None else general.report_dir / safe_name(job_id)
    names = {name: f"{safe_name(name)}_output.json" for name, _ in output.evaluation_results}
    if general.output is not None and general.output.cleanup:
        remove_reports(folder)
    failures = folder / FAILURES_NAME
    failures.unlink(missing_ok=True)
    if text := redact(failures_text(failures_of(output))):
        write_text(failures, without_surrogates(text))
    write_text(folder / CONFIG_EFFECTIVE, dump_resolved(config))
    metadata = {
        "config_file": str(run.config_file) if isinstance(run.config_file, Path) else None,
        "dataset": str(dataset.file_path),
        "result_json_path": run.result_json_path,
        "reps": run.reps,
        "overridden": [key for key, _ in run.override],  # a value may be a secret
        "timestamp": datetime.now(UTC).isoformat(),
    }
    rows = workflow_rows(output.eval_input.eval_input_items, output.failures, dataset)
    return output.model_copy(
        update={
            "workflow_output_file": write_json(folder / WORKFLOW_OUTPUT, list(rows)),
            "evaluator_output_files": [
                write_json(folder / names[name], scores(result)) for name, result in output.evaluation_results
            ],
            "failures_file": failures if text else None,
            "config_effective_file": folder / CONFIG_EFFECTIVE,
            "config_metadata_file": write_json(folder / CONFIG_METADATA, metadata),
        }
    )


def check_writable(folder: Path, option: str) -> None:
    """Raise ConfigError, naming the option, unless files can be created in the folder.

    It is called before any rollout, so that a run cannot end without a place for its results.
    """
    absolute = folder.absolute()
    existing = next(path for path in (absolute, *absolute.parents) if path.exists())
    if not existing.is_dir():
        raise ConfigError([f"{option}: {existing} is a file, so {folder} cannot be a folder"])
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(
            [f"{option}: cannot write to {folder}: {existing} is read-only for you"],
            hint="choose a folder that you may write to, or change its owner or mode",
        )
