"""Is there an expected answer, where an evaluator may need one? Pure."""

from collections.abc import Mapping, Sequence

from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvalInputItem, EvaluatorBaseConfig
from nat.errors import DatasetError, did_you_mean, one_of


def check_expected_answers(
    items: Sequence[EvalInputItem], dataset: DatasetBaseConfig, evaluators: Mapping[str, EvaluatorBaseConfig]
) -> None:
    """Raise DatasetError if no row has an answer and an evaluator needs it; single rows without one fail alone."""
    needing = [name for name, evaluator in evaluators.items() if evaluator.needs_expected_answer]
    keys = dataset.structure
    if not needing or any(item.expected_output_obj is not None for item in items if not keys.disable):
        return
    columns = {str(column) for item in items for column in item.full_dataset_entry or ()}
    if keys.disable:
        seen = "structure.disable hands the whole row to the workflow, and expects nothing"
    elif keys.answer_key in columns:
        seen = f"the column '{keys.answer_key}' is empty in all {len(items)} rows"
    else:
        seen = f"there is no column '{keys.answer_key}'.{did_you_mean(keys.answer_key, columns)}"
    raise DatasetError(
        f"{dataset.file_path}: no row has an expected answer, and eval.evaluators.{', '.join(needing)} cannot score "
        f"without: {seen} Columns: {one_of(columns)}.",
        hint="Name the column of the answers in eval.general.dataset.structure.answer_key, or use another evaluator.",
    )


def misspelt_answers(items: Sequence[EvalInputItem], dataset: DatasetBaseConfig) -> str | None:
    """A warning where no column holds answers, but one is nearly called so; not every evaluator says what it needs."""
    key = dataset.structure.answer_key
    columns = {str(column) for item in items for column in item.full_dataset_entry or ()}
    nearest = did_you_mean(key, columns - {dataset.structure.question_key})
    if dataset.structure.disable or key in columns or not nearest:
        return None
    return (
        f"{dataset.file_path}: there is no column '{key}', so evaluators get no expected answer.{nearest} Rename it, "
        "or name it in eval.general.dataset.structure.answer_key."
    )
