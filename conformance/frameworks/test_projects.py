"""The project that `nat init` writes for each framework is tidy, passes its test and trains, in its environment."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.environments import outside, python_of
from conformance.frameworks.driver import OFFLINE

from fakes.project_model import project_model
from nat.project.new_project import FRAMEWORKS

ENVIRONMENTS = {"command": "openai", "langgraph": "langchain"}
"""Those that have no environment of their own."""
TO_VERDICT = {"langgraph"}
"""`make test` trains the project for the OpenAI SDK to its verdict; the others train for one epoch."""
NUM_EXAMPLES = 8
DEADLINE_S = 900
RUN_TESTS = "import test_agent; [test() for name, test in vars(test_agent).items() if name.startswith('test_')]"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test every framework, or the selected ones."""
    if "framework" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--framework") or FRAMEWORKS
        metafunc.parametrize("framework", [name for name in FRAMEWORKS if name in wanted])


def test_the_project_works(framework: str, tmp_path: Path) -> None:
    """It is linted and formatted; its test passes; it trains, with every rollout in one row: one to the verdict."""
    nat(framework, tmp_path, "init", "demo", "--framework", framework, "--no_model")
    project, tools = tmp_path / "demo", FRAMEWORKS[framework]
    shutil.copytree(project_model(tools.tool, tools.answer_tool), project / "model")
    ruff = Path(sys.executable).with_name("ruff")
    done(project, ruff, "check", "--isolated", "--extend-select", "B,I,UP,SIM,RET,PT", ".")
    done(project, ruff, "format", "--isolated", "--check", ".")
    done(project, python_of(ENVIRONMENTS.get(framework, framework)), "-c", RUN_TESTS)
    if framework in TO_VERDICT:
        summary = trained(framework, project, num_epochs=5)
        assert summary["verdict"] == "improved"
    else:
        for split in ("train", "held_out"):
            shorten(project / "data" / f"{split}.jsonl")
        summary = trained(framework, project, num_epochs=1)
    assert summary["tokens_trained"] > 0
    assert summary["failures"] == []
    assert summary["broken_by"] == {}


def trained(framework: str, project: Path, *, num_epochs: int) -> dict[str, object]:
    """The summary of a run."""
    epochs = ("-o", "finetuning.num_epochs", f"{num_epochs}")
    return json.loads(nat(framework, project, "finetune", "--config_file", "config.yml", "--json", *epochs))


def nat(framework: str, folder: Path, *arguments: str) -> str:
    """Run `nat` in the framework's environment."""
    return done(folder, python_of(ENVIRONMENTS.get(framework, framework)).with_name("nat"), *arguments)


def done(folder: Path, *command: str | Path) -> str:
    """Run a command in a folder until it succeeds; gives its output."""
    ended = subprocess.run(
        command, cwd=folder, env=outside() | OFFLINE, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-6000:]
    return ended.stdout


def shorten(data: Path) -> None:
    data.write_text("".join(data.read_text().splitlines(keepends=True)[:NUM_EXAMPLES]))
