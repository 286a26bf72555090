"""Real trackers, offline: a run of three epochs that is killed and goes on is there once, whole, under one id."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conformance.environments import REPOSITORY, outside, python_of

HERE = Path(__file__).parent
DEADLINE_S = 300


class Case(NamedTuple):
    config: dict[str, Any]
    place: str = ""
    """Where it writes, other than to the run's folder."""


CASES = {
    "wandb": Case({"offline": True}),
    "mlflow": Case({"tracking_uri": "sqlite:///{home}/mlflow.db"}, "sqlite:///{home}/mlflow.db"),
    "trackio": Case({}, "{home}/trackio"),
    "tensorboard": Case({}),
    "comet": Case({"offline": True}),
}


def played(script: str, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = f"{REPOSITORY / 'tests'}"
    quiet = {"DO_NOT_TRACK": "true", "WANDB_ERROR_REPORTING": "false", "COMET_LOGGING_CONSOLE": "error"}
    env = outside() | quiet | {"PYTHONPATH": paths, "HOME": str(home), "TRACKIO_DIR": str(home / "trackio")}
    command = [python_of("trackers"), HERE / script, *arguments]
    return subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.fixture(scope="module", params=CASES)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the tracker has at the end, with its name."""
    home, (config, place) = tmp_path_factory.mktemp(request.param), CASES[request.param]
    text = json.dumps({"_type": request.param, **config}).replace("{home}", str(home))
    run_dir = home / "runs" / "run-1"
    killed = played("play.py", home, str(run_dir), text, "first")
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    again = played("play.py", home, str(run_dir), text, "again")
    assert again.returncode == 0, again.stderr[-3000:]
    read = played("read.py", home, str(run_dir), request.param, place.replace("{home}", str(home)))
    assert read.returncode == 0, read.stderr[-3000:]
    return json.loads(read.stdout) | {"said": killed.stdout}


def test_a_run_that_was_killed_goes_on_under_its_id(found):
    """There is one run."""
    assert len(found["runs"]) == 1


def test_each_number_is_there(found):
    """Epochs by epoch, optimizer steps by step, validations with their interval; equal steps are equal points."""
    numbers = {name: {at: pytest.approx(value) for at, value in points} for name, points in found["metrics"].items()}
    assert numbers["avg_reward"] == {0: 0.25, 1: 0.5, 2: 0.75}
    assert numbers["train/loss"] == {0: 0.5, 1: 0.25, 2: 0.5 / 3}
    assert numbers["step/loss"] == {step: 1 / step for step in range(1, 7)}
    assert numbers["val/avg_reward"] == {0: 0.25, 3: 0.75}
    assert {"val/interval_low", "val/interval_high", "epoch/num_trajectories"} <= numbers.keys()


def test_rollouts_are_tables(found):
    """One of each epoch, with the rollouts in their order."""
    tables = found["tables"]["rollouts"]
    assert sorted(tables) == ["0", "1", "2"]
    for rows in tables.values():
        texts = [json.dumps(row, ensure_ascii=False) for row in rows if "What is" in str(row) or "workflow" in str(row)]
        assert "assistant: 4" in texts[0]
        assert "assistant: 5" in texts[1]
        assert "KeyError: 'city'" in texts[3]


def test_config_verdict_and_artifacts_are_there(found):
    """The settings, the verdict with its interval, the plot and the models."""
    assert "models/small" in found["config"]
    assert found["facts"]["verdict"] == "improved"
    assert float(found["facts"]["interval_low"]) == 0.125
    assert sorted(found["artifacts"]) == ["checkpoint", "model", "plot"]


def test_the_run_prints_nothing_of_the_tracker(found):
    """A tracker writes nothing to the output that belongs to the run."""
    assert found["said"] == ""
