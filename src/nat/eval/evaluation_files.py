"""Write what an evaluation found into its report folder."""

from datetime import UTC, datetime
from pathlib import Path

from nat.config.load import dump_resolved
from nat.data_models.config import Config
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluate_runtime import EvaluationRunConfig, EvaluationRunOutput
from nat.eval.failures import FAILURES_NAME, failures_of, failures_text
from nat.eval.report import (
    CONFIG_EFFECTIVE,
    CONFIG_METADATA,
    WORKFLOW_OUTPUT,
    RowKeys,
    evaluator_file,
    remove_reports,
    safe_name,
    scores,
    workflow_rows,
    write_bytes,
    write_json,
)
from nat.secrets import redact


def write_reports(
    output: EvaluationRunOutput,
    run: EvaluationRunConfig,
    config: Config,
    dataset: DatasetBaseConfig,
    job_id: str | None = None,
) -> EvaluationRunOutput:
    """The same output with the paths of its files; `job_id` is a sub-folder, so that jobs keep their own."""
    general = config.eval.general
    folder = general.report_dir if job_id is None else general.report_dir / safe_name(job_id)
    names = {name: evaluator_file(name) for name, _ in output.evaluation_results}
    if general.output is not None and general.output.cleanup:
        remove_reports(folder)
    keys = RowKeys(id_key=dataset.id_key, structure=dataset.structure)
    rows = workflow_rows(output.eval_input.eval_input_items, output.failures, keys)
    return output.model_copy(
        update={
            "workflow_output_file": write_json(folder / WORKFLOW_OUTPUT, list(rows)),
            "evaluator_output_files": [
                write_json(folder / names[name], scores(result)) for name, result in output.evaluation_results
            ],
            "failures_file": _write_failures(folder / FAILURES_NAME, failures_text(failures_of(output))),
            "config_effective_file": write_bytes(folder / CONFIG_EFFECTIVE, dump_resolved(config).encode()),
            "config_metadata_file": write_json(folder / CONFIG_METADATA, _metadata(run, dataset)),
        }
    )


def _write_failures(path: Path, text: str) -> Path | None:
    """None, and no file of an earlier evaluation, if nothing failed."""
    path.unlink(missing_ok=True)
    return write_bytes(path, redact(text).encode(errors="backslashreplace")) if text else None


def _metadata(run: EvaluationRunConfig, dataset: DatasetBaseConfig) -> dict[str, object]:
    """How the evaluation was asked for. Of overrides only the keys: a value may be a secret."""
    return {
        "config_file": str(run.config_file) if isinstance(run.config_file, Path) else None,
        "dataset": str(dataset.file_path),
        "result_json_path": run.result_json_path,
        "reps": run.reps,
        "overridden": [key for key, _ in run.override],
        "timestamp": datetime.now(UTC).isoformat(),
    }
