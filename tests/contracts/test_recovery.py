"""What a process remembers is restored from the journal or a checkpoint, or may be forgotten; a table says which."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "contribute" / "decisions" / "0038-kept-until-it-is-recorded.md"
LONG_LIVED = {
    "nat.finetuning.trainer": ["EpochTrainer"],
    "nat.finetuning.recording_trainer": ["RecordingTrainer"],
    "nat.finetuning.interfaces.finetuning_runner": ["Trainer"],
    "nat.finetuning.trajectory_builder": ["EvalTrajectoryBuilder"],
    "nat.finetuning.preferences.builder": ["DPOTrajectoryBuilder"],
    "nat.finetuning.run_context": ["RunContext"],
    "nat.finetuning.run_log": ["RunLog"],
    "nat.finetuning.training_state": ["TrainingState"],
    "nat.finetuning.trackers": ["Trackers"],
    "nat.plugins.local.adapter": ["LocalTrainerAdapter"],
    "nat.rollout.session": ["WorkflowSession"],
    "nat.backend.training.jobs": ["TrainingJobs"],
    "nat.backend.training.job_table": ["JobTable"],
    "nat.backend.training.learner": ["Learner"],
    "nat.backend.training.optimizer": ["MasterAdamW"],
    "nat.backend.training.reference": ["Reference"],
    "nat.backend.training.checkpoints": ["Checkpoints"],
    "nat.backend.training.ledger": ["JobLedger"],
    "nat.backend.training.accepted_jobs": ["AcceptedJobs"],
    "nat.backend.training.saving": ["Saving"],
}
"""Classes whose objects live as long as a run or its backend."""
BEGINNINGS = {"__init__", "__post_init__", "initialize", "bind_components"}
"""Methods that set what a run is given; what they set to something empty is state."""


def changing(kind: type) -> Iterator[str]:
    """The attributes that change while an object lives, and the fields that begin empty."""
    [tree] = ast.parse(inspect.getsource(kind)).body
    for method in ast.walk(tree):
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(method):
                yield from (
                    name
                    for name in assigned(node)
                    if method.name not in BEGINNINGS or is_empty(getattr(node, "value", None))
                )
    for node in tree.body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and "default_factory" in ast.dump(node)
        ):
            yield node.target.id


def assigned(node: ast.AST) -> list[str]:
    """The attributes of self that a statement sets."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return []
    parts = (part for target in targets if target is not None for part in ast.walk(target))
    return [
        part.attr
        for part in parts
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name)
        and part.value.id == "self"
    ]


def is_empty(value: ast.expr | None) -> bool:
    """True for what stands for "nothing yet"."""
    if isinstance(value, ast.Constant):
        return not value.value
    if isinstance(value, ast.Dict | ast.List | ast.Set):
        return not (value.keys if isinstance(value, ast.Dict) else value.elts)
    return isinstance(value, ast.Call) and not value.args and not value.keywords and "Lock" not in ast.dump(value.func)


def listed() -> dict[str, str]:
    """Each `Class.attribute` of the table, and what it says about it."""
    rows = re.findall(r"^\| (`.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: text for names, text in rows for name in re.findall(r"`(\w+\.\w+)`", names)}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in LONG_LIVED.items() for name in names])
def test_all_that_changes_has_a_place_to_be_restored_from(module, name):
    """A new attribute needs a row: restored from where, or why it may be forgotten."""
    found = {f"{name}.{attribute}" for attribute in changing(getattr(importlib.import_module(module), name))}
    assert found == {row for row in listed() if row.startswith(f"{name}.")}


def test_each_row_says_something():
    """A place, or a reason."""
    assert all(len(text) > 4 for text in listed().values())
