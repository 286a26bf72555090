"""The notebooks of the examples run from their first cell to the last."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.runs_on_disk import make_run
from nat.runs import Run

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

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
for figure in names["plt"].get_fignums():
    names["plt"].figure(figure).savefig(f"figure_{figure}.png")
"""
"""Runs the code cells in one namespace, shows the value of each cell's last line, and draws the figures as files."""

RUN = "20260314-120000-aaaa"


def shown_by(name: str, folder: Path) -> str:
    """What a notebook of this name shows in a folder; its cells run in order, without an error or a warning."""
    environment = {**os.environ, "MPLBACKEND": "agg", "XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-W", "error", "-c", AS_JUPYTER_DOES, str(FOLDER / f"{name}.ipynb")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert (folder / "figure_1.png").stat().st_size > 10_000
    return done.stdout


def test_a_run_is_looked_at(tmp_path):
    """In the folder of a run, `look_at_a_run` shows the run."""
    make_run(tmp_path / ".tmp" / "nat" / "finetuning", RUN)
    assert f"<bdi>{RUN}</bdi>" in shown_by("look_at_a_run", tmp_path)


def test_a_new_project_is_trained_and_plotted(tmp_path):
    """In an empty folder, `from_init_to_plot` makes a project, improves and exports its model, and plots the run."""
    shown = shown_by("from_init_to_plot", tmp_path)
    run = Run.open("latest", tmp_path / "my_agent")
    assert f"<bdi>{run.id}</bdi>" in shown
    assert (run.state, len(run.epochs()), run.summary.verdict) == ("completed", 8, "improved")
    assert list(run.validations()["epoch"]) == [0, 2, 4, 6, 8]
    assert "Training on these examples has a signal" in shown
    assert "After 0 epochs, reward 0.0:" in shown
    assert "After 8 epochs, reward 1.0:" in shown
    assert (tmp_path / "my_agent" / "better_model" / "model.safetensors").is_file()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path):
    """Outputs would be of one machine and one run, and would hide what a change changes."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook["cells"])


def test_there_are_notebooks():
    """The folder is where the tests look for it."""
    assert [path.stem for path in NOTEBOOKS] == ["from_init_to_plot", "look_at_a_run"]
