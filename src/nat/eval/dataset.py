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

from nat.data_models.evaluate import DatasetBaseConfig, EvalFilterConfig
from nat.data_models.evaluator import EvalInputItem, EvaluatorBaseConfig
from nat.data_models.intermediate_step import IntermediateStep
from nat.errors import DatasetError, did_you_mean, one_of

_NAME_THEM = "Name one of them under eval.general.dataset, or rename the column in the file."
_DEMONSTRATIONS = (
    "Rows of `messages` are answers to imitate: `trajectory_builders: {rollouts: {_type: dataset_traj_builder, "
    "file_path: …}}` trains on them (docs/recipes/demonstrations.md). To play them, give each row its question."
)

Row = Mapping[str, Any]

_STEPS = TypeAdapter(list[IntermediateStep])
_MAX_NAMED = 5
_USUAL_ANSWERS = ("expected", "expected_output", "solution", "target", "label", "ground_truth", "reference", "gold")
"""Columns of other projects' datasets that have the answers."""


def eval_items(rows: Sequence[Row], config: DatasetBaseConfig, *, source: str) -> list[EvalInputItem]:
    """The items of all rows that pass the filter; `source` names the file in errors."""
    if not rows:
        raise DatasetError(f"{source} has no rows", hint="Add rows, or choose another file.")
    columns = {column for row in rows for column in row}
    _check_columns(rows, columns, config, source)
    numbered = [
        (n, row) for n, row in enumerate(rows, start=1) if config.filter is None or passes_filter(config.filter, row)
    ]
    if not numbered:
        raise DatasetError(f"{source}: the filter leaves none of {len(rows)} rows", hint="Widen its lists.")
    ids = _ids(numbered, config, columns, source)
    if not config.structure.disable:
        key = config.structure.question_key
        if empty := [n for n, row in numbered if _blank(row.get(key))]:
            hint = "Fill the cells, or leave the rows out by a filter."
            raise DatasetError(f"{source}: '{key}' is empty in {_named(empty)}", hint=hint)
    return [_item(ids[n], row, config, f"{source}, row {n}") for n, row in numbered]


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
        if item.expected_output_obj not in (None, ""):
            example = first.setdefault(_content(item), item.example)
            if example != item.example:
                found[item.example] = example
    return found if len(first) > 1 else {}


def _content(item: EvalInputItem) -> str:
    """The row without its id, which is in the column `id` or in the first that has it."""
    row = item.full_dataset_entry if isinstance(item.full_dataset_entry, dict) else {}
    id_key = next((key for key in ("id", *row) if str(row.get(key)) == item.example), None)
    rest = {key: value for key, value in row.items() if key != id_key}
    return json.dumps([item.input_obj, item.expected_output_obj, rest], sort_keys=True, default=str)


def _item(item_id: Any, row: Row, config: DatasetBaseConfig, place: str) -> EvalInputItem:
    keys = config.structure
    if keys.disable:
        text = json.dumps(row, ensure_ascii=False, default=str)
        return EvalInputItem(id=item_id, input_obj=text, expected_output_obj="", full_dataset_entry=row)
    return EvalInputItem(
        id=item_id,
        input_obj=row[keys.question_key],
        expected_output_obj=row.get(keys.answer_key),
        expected_trajectory=_steps(row.get(keys.expected_trajectory_key), place),
        full_dataset_entry=row,
    )


def _steps(value: Any, place: str) -> list[IntermediateStep]:
    """Steps from a list, or from JSON text."""
    try:
        if isinstance(value, str):
            return _STEPS.validate_json(value) if value.strip() else []
        return _STEPS.validate_python(value or [])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DatasetError(f"{place}: the expected steps are not steps: {where}: {first['msg']}") from error


def _check_columns(rows: Sequence[Row], columns: set[str], config: DatasetBaseConfig, source: str) -> None:
    """Keys that the user set must be columns, and so must the question; other defaults may be absent."""
    keys = config.structure
    wanted = {"id_key": config.id_key} if "id_key" in config.model_fields_set else {}
    if not keys.disable:
        wanted["structure.question_key"] = keys.question_key
        if "answer_key" in keys.model_fields_set:
            wanted["structure.answer_key"] = keys.answer_key
        if "expected_trajectory_key" in keys.model_fields_set:
            wanted["structure.expected_trajectory_key"] = keys.expected_trajectory_key
    others = columns - set(wanted.values())
    findings = [_missing(f"{key} '{name}'", name, others) for key, name in wanted.items() if name not in columns]
    answers = wanted.get("structure.answer_key")
    if answers in columns and all(row.get(answers) is None for row in rows):
        findings.append(f"structure.answer_key '{answers}' is empty in all {len(rows)} rows.")
    if config.filter is not None:
        lists = [part.field for part in (config.filter.allowlist, config.filter.denylist) if part is not None]
        unknown = sorted({column for fields in lists for column in fields} - columns)
        findings += [_missing(f"filter on '{name}'", name, columns) for name in unknown]
    if findings:
        listed = f"The columns are {', '.join(map(repr, sorted(columns)))}."
        only = next(iter(columns)) if len(columns) == 1 else ""
        hint = "Separate them by commas, not by semicolons or tabs." if re.search("[;\t]", only) else _NAME_THEM
        hint = _DEMONSTRATIONS if "messages" in others else hint
        raise DatasetError(f"{source}: {'; '.join(findings)} {listed}", hint=hint)


def _missing(what: str, name: str, columns: set[str]) -> str:
    return f"{what}: no such column.{did_you_mean(name, columns)}"


def _blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _ids(rows: Sequence[tuple[int, Row]], config: DatasetBaseConfig, columns: set[str], source: str) -> dict[int, Any]:
    """The id of each row by its number: that of the id column, or the number as text if there is no such column.

    Ids keep their type, and differ as text too, since scores are attached by their text.
    """
    if config.id_key not in columns:
        return {n: str(n) for n, _ in rows}
    without = [n for n, row in rows if _blank(row.get(config.id_key))]
    if without:
        raise DatasetError(f"{source}: '{config.id_key}' is empty in {_named(without)}", hint="Give each row an id.")
    ids = {n: row[config.id_key] for n, row in rows}
    numbers: dict[str, list[int]] = {}
    for n, item_id in ids.items():
        numbers.setdefault(str(item_id), []).append(n)
    doubled = [f"'{item_id}' in {_named(ns)}" for item_id, ns in numbers.items() if len(ns) > 1]
    if doubled:
        more = f" (and {len(doubled) - _MAX_NAMED} more ids)" if len(doubled) > _MAX_NAMED else ""
        raise DatasetError(
            f"{source}: ids are not unique: {'; '.join(doubled[:_MAX_NAMED])}{more}",
            hint="Scores are attached by id; without an id column the row number is the id.",
        )
    return ids


def _named(numbers: Sequence[int]) -> str:
    """`row 3`, `rows 3 and 7`, `rows 1, 2, 3, 4, 5 and 95 more`."""
    if len(numbers) == 1:
        return f"row {numbers[0]}"
    if len(numbers) > _MAX_NAMED:
        return f"rows {', '.join(map(str, numbers[:_MAX_NAMED]))} and {len(numbers) - _MAX_NAMED} more"
    return f"rows {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def passes_filter(config: EvalFilterConfig, row: Mapping[str, Any]) -> bool:
    """True if the row matches every column of the allow list, and no column of the deny list."""
    allowed = config.allowlist.field if config.allowlist is not None else {}
    denied = config.denylist.field if config.denylist is not None else {}
    return all(_matches(row.get(column), values) for column, values in allowed.items()) and not any(
        _matches(row.get(column), values) for column, values in denied.items()
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
    columns = {str(column) for item in items for column in item.full_dataset_entry or ()}
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
    key = dataset.structure.answer_key
    columns = {str(column) for item in items for column in item.full_dataset_entry or ()}
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
