"""The project that `nat init` writes for each framework is tidy, passes its test and trains, in its environment."""

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.environments import outside, python_of
from conformance.frameworks.driver import OFFLINE

from nat.project.frameworks import FRAMEWORKS

ENVIRONMENTS = {"command": "openai", "langgraph": "langchain"}
"""Those that have no environment of their own."""
NUM_EXAMPLES = 8
DEADLINE_S = 900
RUN_TESTS = "import test_agent; [test() for name, test in vars(test_agent).items() if name.startswith('test_')]"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test every framework, or the selected ones."""
    if "framework" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--framework") or FRAMEWORKS
        metafunc.parametrize("framework", [name for name in FRAMEWORKS if name in wanted])


def test_the_project_works(framework: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It is linted and formatted; its test passes; an epoch trains, with every rollout in one row."""
    nat(framework, tmp_path, "init", "demo", "--framework", framework, "--no_model")
    project = tmp_path / "demo"
    shutil.copytree(model_for(framework, tmp_path_factory.getbasetemp().parent), project / "model")
    ruff = Path(sys.executable).with_name("ruff")
    done(project, ruff, "check", "--isolated", "--extend-select", "B,I,UP,SIM,RET,PT", ".")
    done(project, ruff, "format", "--isolated", "--check", ".")
    done(project, python_of(ENVIRONMENTS.get(framework, framework)), "-c", RUN_TESTS)
    for split in ("train", "held_out"):
        shorten(project / "data" / f"{split}.jsonl")
    summary = trained(framework, project, num_epochs=1)
    assert summary["tokens_trained"] > 0
    assert summary["failures"] == []
    assert summary["broken_by"] == {}


def test_langgraph_reaches_its_verdict(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """`nat init` and a shortened `nat finetune`, as a user runs them: the agent has improved."""
    if "langgraph" not in (request.config.getoption("--framework") or FRAMEWORKS):
        pytest.skip("another framework was selected")
    nat("langgraph", tmp_path, "init", "demo", "--framework", "langgraph")
    assert trained("langgraph", tmp_path / "demo", num_epochs=6)["verdict"] == "improved"


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


def model_for(framework: str, shared: Path) -> Path:
    """A model that knows the names of the framework's tools; the tests of a run share those with equal names."""
    tool, answer_tool = FRAMEWORKS[framework].tool, FRAMEWORKS[framework].answer_tool
    folder = shared / f"calculator-{tool}-{answer_tool or 'text'}"
    with folder.with_suffix(".busy").open("w") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        if not folder.exists():
            answers = [] if answer_tool is None else ["--answer_tool", answer_tool]
            making = folder.with_suffix(".unfinished")
            done(shared, sys.executable, "-m", "nat.backend.calculator", making, "--tool", tool, *answers)
            making.rename(folder)
    return folder


def shorten(data: Path) -> None:
    data.write_text("".join(data.read_text().splitlines(keepends=True)[:NUM_EXAMPLES]))
