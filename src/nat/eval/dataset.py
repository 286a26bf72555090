"""Turn the rows of a file into the items of an evaluation. Pure.

Dataset plug-ins read the file. Here a row gets its id, its columns get their meaning, and the filter and the expected
answers are checked. Rows are counted from 1, as errors name them.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nat.data_models.evaluate import DatasetBaseConfig, EvalFilterConfig, EvalFilterEntryConfig
from nat.data_models.evaluator import EvalInputItem, EvaluatorBaseConfig
from nat.data_models.intermediate_step import IntermediateStep
from nat.errors import DatasetError, did_you_mean, one_of

Row = Mapping[str, Any]

_STEPS = TypeAdapter(list[IntermediateStep])
_MAX_NAMED = 5
_USUAL_ANSWERS = ("expected", "expected_output", "solution", "target", "label", "ground_truth", "reference", "gold")
"""Columns of other projects' datasets that have the answers."""
_DEMONSTRATIONS = (
    "Rows of `messages` are answers to imitate: `trajectory_builders: {rollouts: {_type: dataset_traj_builder, "
    "file_path: …}}` trains on them (docs/recipes/demonstrations.md). To play them, give each row its question."
)


def eval_items(rows: Sequence[Row], config: DatasetBaseConfig, *, source: str) -> list[EvalInputItem]:
    """The items of all rows that pass the filter; `source` names the file in errors.

    Ids keep their type. Without an id column the row's number as text is its id.
    """
    if not rows:
        raise DatasetError(f"{source} has no rows", hint="Add rows, or choose another file.")
    columns, keys = {column for row in rows for column in row}, config.structure
    _check_columns(rows, columns, config, source)
    kept = {n: row for n, row in enumerate(rows, start=1) if config.filter is None or _passes(config.filter, row)}
    if not kept:
        raise DatasetError(f"{source}: the filter leaves none of {len(rows)} rows", hint="Widen its lists.")
    has_ids = config.id_key in columns
    if has_ids:
        _check_filled(kept, config.id_key, source, hint="Give each row an id.")
        _check_unique(kept, config.id_key, source)
    if not keys.disable:
        hint = "Fill the cells, or leave the rows out by a filter."
        _check_filled(kept, keys.question_key, source, hint=hint)
    return [
        _item(row[config.id_key] if has_ids else str(n), row, config, f"{source}, row {n}") for n, row in kept.items()
    ]


def repeat_items(items: Sequence[EvalInputItem], reps: int) -> list[EvalInputItem]:
    """Each item `reps` times, with the ids `<id>_rep0`, `<id>_rep1` …; with 1, ids are unchanged."""
    if reps == 1:
        return list(items)
    return [
        item.copy_with_updates(id=f"{item.id}_rep{rep}", repetition_of=item.id) for item in items for rep in range(reps)
    ]


def copies(items: Iterable[EvalInputItem]) -> dict[str, str]:
    """The examples whose row repeats an earlier one but for the id, with the example of that one.

    Only rows with an expected answer count: without one, as in games that begin alike, the id may seed what differs.
    If all rows are copies of one, there is none, since nothing else was to be shown.
    """
    first: dict[str, str] = {}
    found: dict[str, str] = {}
    for item in items:
        if item.expected_output_obj in (None, ""):
            continue
        row = item.full_dataset_entry if isinstance(item.full_dataset_entry, dict) else {}
        id_key = next((key for key in ("id", *row) if str(row.get(key)) == item.example), None)
        rest = {key: value for key, value in row.items() if key != id_key}
        content = json.dumps([item.input_obj, item.expected_output_obj, rest], sort_keys=True, default=str)
        example = first.setdefault(content, item.example)
        if example != item.example:
            found[item.example] = example
    return found if len(first) > 1 else {}


def _item(item_id: Any, row: Row, config: DatasetBaseConfig, place: str) -> EvalInputItem:
    keys = config.structure
    if keys.disable:
        text = json.dumps(row, ensure_ascii=False, default=str)
        return EvalInputItem(id=item_id, input_obj=text, expected_output_obj="", full_dataset_entry=row)
    steps = row.get(keys.expected_trajectory_key)
    try:
        as_text = isinstance(steps, str)  # in CSV
        expected = _STEPS.validate_json(str(steps).strip() or "[]") if as_text else _STEPS.validate_python(steps or [])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DatasetError(f"{place}: the expected steps are not steps: {where}: {first['msg']}") from error
    return EvalInputItem(
        id=item_id,
        input_obj=row[keys.question_key],
        expected_output_obj=row.get(keys.answer_key),
        expected_trajectory=expected,
        full_dataset_entry=row,
    )


def _check_columns(rows: Sequence[Row], columns: set[str], config: DatasetBaseConfig, source: str) -> None:
    """Keys that the user set must be columns, and so must the question; other defaults may be absent."""
    keys, findings = config.structure, []
    wanted = {"id_key": config.id_key} if "id_key" in config.model_fields_set else {}
    if not keys.disable:
        named = {"question_key"} | (keys.model_fields_set & {"answer_key", "expected_trajectory_key"})
        wanted |= {f"structure.{key}": getattr(keys, key) for key in sorted(named)}
    others = columns - set(wanted.values())
    answers = wanted.get("structure.answer_key")
    if answers in columns and all(row.get(answers) is None for row in rows):
        findings.append(f"structure.answer_key '{answers}' is empty in all {len(rows)} rows.")
    missing = [(f"{key} '{name}'", name, others) for key, name in wanted.items()]
    lists = (config.filter.allowlist, config.filter.denylist) if config.filter is not None else ()
    missing += [(f"filter on '{name}'", name, columns) for part in lists if part is not None for name in part.field]
    findings += [
        f"{what}: no such column.{did_you_mean(name, known)}" for what, name, known in missing if name not in columns
    ]
    if findings:
        hint = "Name one of them under eval.general.dataset, or rename the column in the file."
        if len(columns) == 1 and re.search("[;\t]", "".join(columns)):
            hint = "Separate them by commas, not by semicolons or tabs."
        elif "messages" in others:
            hint = _DEMONSTRATIONS
        listed = f"The columns are {', '.join(map(repr, sorted(columns)))}."
        raise DatasetError(f"{source}: {'; '.join(findings)} {listed}", hint=hint)


def _check_filled(rows: Mapping[int, Row], column: str, source: str, *, hint: str) -> None:
    empty = [n for n, row in rows.items() if row.get(column) is None or not str(row[column]).strip()]
    if empty:
        raise DatasetError(f"{source}: '{column}' is empty in {_named(empty)}", hint=hint)


def _check_unique(rows: Mapping[int, Row], column: str, source: str) -> None:
    """Ids differ as text too, since scores are attached by their text."""
    numbers: dict[str, list[int]] = {}
    for n, row in rows.items():
        numbers.setdefault(str(row[column]), []).append(n)
    doubled = [f"'{item_id}' in {_named(ns)}" for item_id, ns in numbers.items() if len(ns) > 1]
    if doubled:
        more = f" (and {len(doubled) - _MAX_NAMED} more ids)" if len(doubled) > _MAX_NAMED else ""
        raise DatasetError(
            f"{source}: ids are not unique: {'; '.join(doubled[:_MAX_NAMED])}{more}",
            hint="Scores are attached by id; without an id column the row number is the id.",
        )


def _named(numbers: Sequence[int]) -> str:
    """`row 3`, `rows 3 and 7`, `rows 1, 2, 3, 4, 5 and 95 more`."""
    shown = [str(n) for n in numbers[:_MAX_NAMED]]
    if len(numbers) > _MAX_NAMED:
        shown.append(f"{len(numbers) - _MAX_NAMED} more")
    return f"rows {', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else f"row {shown[0]}"


def _passes(config: EvalFilterConfig, row: Row) -> bool:
    """True if the row matches every column of the allow list, and no column of the deny list."""
    allowed, denied = (part or EvalFilterEntryConfig() for part in (config.allowlist, config.denylist))
    return all(_matches(row.get(column), values) for column, values in allowed.field.items()) and not any(
        _matches(row.get(column), values) for column, values in denied.field.items()
    )


def _matches(cell: Any, values: list[Any]) -> bool:
    """True if the cell is one of the values; compared as text, so that 42 in YAML matches `42` in CSV."""
    if cell is None:
        return None in values
    return any(value is not None and (cell == value or fnmatchcase(str(cell), str(value))) for value in values)


def check_expected_answers(
    items: Sequence[EvalInputItem], dataset: DatasetBaseConfig, evaluators: Mapping[str, EvaluatorBaseConfig]
) -> None:
    """Raise DatasetError if an evaluator needs expected answers and no row has one.

    If only some rows have none, those rows fail later, each alone.
    """
    needing = [name for name, evaluator in evaluators.items() if evaluator.needs_expected_answer]
    keys = dataset.structure
    if not needing or any(item.expected_output_obj is not None for item in items if not keys.disable):
        return
    columns = _columns(items)
    if keys.disable:
        seen = "structure.disable passes the whole row to the workflow, without an expected answer"
    elif keys.answer_key in columns:
        seen = f"the column '{keys.answer_key}' is empty in all {len(items)} rows"
    else:
        seen = f"there is no column '{keys.answer_key}'.{did_you_mean(keys.answer_key, columns)}"
    raise DatasetError(
        f"{dataset.file_path}: no row has an expected answer, and eval.evaluators.{', '.join(needing)} cannot score "
        f"without: {seen} Columns: {one_of(columns)}.",
        hint="Name the column of the answers in eval.general.dataset.structure.answer_key, or use another evaluator.",
    )


def answer_column_warning(items: Sequence[EvalInputItem], dataset: DatasetBaseConfig) -> str | None:
    """A warning if no column has the answers but one may, or if answers are missing in some rows; None otherwise.

    Evaluators of plug-ins need not declare that they use expected answers.
    """
    key, columns = dataset.structure.answer_key, _columns(items)
    if dataset.structure.disable:
        return None
    if key in columns:
        if not (without := [str(item.id) for item in items if item.expected_output_obj is None]):
            return None
        ids = ", ".join(without[:_MAX_NAMED]) + (", …" if len(without) > _MAX_NAMED else "")
        return (
            f"{dataset.file_path}: {len(without)} of {len(items)} rows have no '{key}' (ids: {ids}), so evaluators get "
            "no expected answer for them. Fill them in, or leave the rows out by a filter."
        )
    usual = next((f" Did you mean '{name}'?" for name in _USUAL_ANSWERS if name in columns), "")
    nearest = did_you_mean(key, columns - {dataset.structure.question_key}) or usual
    if not nearest:
        return None
    return (
        f"{dataset.file_path}: there is no column '{key}', so evaluators get no expected answer.{nearest} Rename it, "
        "or name it in eval.general.dataset.structure.answer_key."
    )


def _columns(items: Sequence[EvalInputItem]) -> set[str]:
    return {str(column) for item in items for column in item.full_dataset_entry or ()}
