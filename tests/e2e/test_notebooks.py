"""The notebooks of the examples run from their first cell to the last."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.runs_on_disk import make_run

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))

AS_JUPYTER_DOES = """
import ast, json, sys
from pathlib import Path
names = {"__name__": "__main__"}
for number, cell in enumerate(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"], 1):
    if cell["cell_type"] != "code":
        continue
    source = "".join(cell["source"])
    tree = ast.parse(source, f"cell {number}")
    shown = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) and not source.endswith(";") else None
    exec(compile(tree, f"cell {number}", "exec"), names)
    if shown is not None:
        value = eval(compile(ast.Expression(shown.value), f"cell {number}", "eval"), names)
        if hasattr(value, "_repr_html_"):
            print(value._repr_html_())
"""
"""Runs the code cells in one namespace, and shows the value of each cell's last line."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    """Its cells run in order in the folder of a run, without an error or a warning, and show the run."""
    make_run(tmp_path / ".tmp" / "nat" / "finetuning", "20260314-120000-aaaa")
    environment = {**os.environ, "MPLBACKEND": "agg", "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-W", "error", "-c", AS_JUPYTER_DOES, str(path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own interpreter and text
    assert (done.returncode, done.stderr) == (0, "")
    assert "<bdi>20260314-120000-aaaa</bdi>" in done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path):
    """Outputs would be of one machine and one run, and would hide what a change changes."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook["cells"])


def test_there_are_notebooks():
    """The folder is where the tests look for it."""
    assert [path.stem for path in NOTEBOOKS] == ["look_at_a_run"]
