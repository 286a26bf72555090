"""A Ray cluster of two nodes on loopback: rollouts spread, and none is lost when a process or a node dies."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from conformance.environments import REPOSITORY, outside, python_of

HERE = Path(__file__).parent
DEADLINE_S = 300
NAT = "-c", "from nat.cli.main import run_cli; run_cli()"
GAME = REPOSITORY / "examples" / "tic_tac_toe"


def environment(home: Path) -> dict[str, str]:
    return outside() | {"PYTHONPATH": str(GAME / "src"), "OMP_NUM_THREADS": "1", "HOME": str(home)}


def run(home: Path, *command: str) -> str:
    """What a program prints in the environment of Ray."""
    ended = subprocess.run(
        [python_of("ray"), *command],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def found(home: Path) -> Any:
    """What became of the rollouts, case by case; Ray prints before it."""
    return json.loads(run(home, str(HERE / "cases.py")).splitlines()[-1])


def processes(rollouts: list[dict[str, Any]]) -> set[int]:
    return {each["output"]["process"] for each in rollouts if each["output"]}


def check_whole(rollouts: list[dict[str, Any]], count: int) -> None:
    """Each rollout is there once, with its own seed, and none has failed."""
    assert [(each["id"], each["seed"]) for each in rollouts] == [(str(number), number) for number in range(count)]
    assert not any(each["error"] for each in rollouts)


def test_rollouts_spread_over_the_nodes(found, home):
    """Each node plays in a process of its own, in the folder of the run."""
    rollouts = found["spread"]
    check_whole(rollouts, 12)
    assert len(processes(rollouts)) == 2
    assert {each["output"]["folder"] for each in rollouts} == {str(home)}


def test_a_killed_process_loses_no_rollout(found):
    """What it played is played again, and another process takes its place."""
    killed = found["process_killed"]
    check_whole(killed["rollouts"], 40)
    assert killed["killed"] not in killed["replaced"]
    assert len(killed["replaced"]) == 2


def test_a_dead_node_loses_no_rollout(found):
    """The other node plays what it played."""
    check_whole(found["node_killed"], 40)


def test_an_agent_that_ends_its_process_fails(found):
    """With its cause; the others are played."""
    ended, other = found["agent_ends_its_process"]
    assert "its process ended each of the 3 times" in ended["error"]
    assert other["error"] is None


def test_an_agent_that_blocks_has_timed_out(found):
    """Its process is replaced, since nothing else ends it."""
    blocked, *others = found["agent_blocks"]
    assert "no answer within 2 s (eval.general.item_timeout)" in blocked["error"]
    assert not any(each["error"] for each in others)


def test_an_output_that_cannot_be_sent(found):
    """The rollout has failed, and says what could not be pickled."""
    failed, other = found["output_cannot_be_sent"]
    assert "cannot be sent to another process: TypeError: cannot pickle 'generator' object" in failed["error"]
    assert other["error"] is None


def written(home: Path, **finetuning: Any) -> Path:
    """The configuration of a short run of the game."""
    config = yaml.safe_load((GAME / "configs" / "finetune.yml").read_text())
    config["imports"] = ["tic_tac_toe.register"]
    config["llms"]["player"] |= {"model": str(GAME / "model")}
    config["eval"]["general"]["dataset"]["file_path"] = str(GAME / "data" / "train.jsonl")
    config["trajectory_builders"]["games"]["examples_per_epoch"] = 6
    own = {"validation_dataset": str(GAME / "data" / "validation.jsonl"), "validation_interval": 2}
    own = {"num_epochs": 2, "output_dir": str(home / "runs"), "run_configuration": own}
    config["finetuning"] |= own | finetuning
    home.mkdir(exist_ok=True)
    (home / "config.yml").write_text(yaml.safe_dump(config))
    return home / "config.yml"


def test_a_dry_run_starts_the_processes(tmp_path):
    """And says on which machine they are."""
    config = written(tmp_path, rollouts={"workers": 2})
    said = run(tmp_path, *NAT, "finetune", f"--config_file={config}", "--dry_run")
    assert "in 2 processes on Ray (auto): 2 on 127.0.0.1" in said
    assert "trains on cpu; samples on cpu" in said


def test_a_run_goes_on_after_a_sigterm(tmp_path):
    """SIGTERM ends a run with 75."""
    there = tmp_path / "there"
    config = written(there, rollouts={"workers": 2})
    with subprocess.Popen(
        [python_of("ray"), *NAT, "finetune", f"--config_file={config}"], cwd=there, env=environment(there)
    ) as ended:
        waiting_since = time.monotonic()
        while not list((there / "runs").glob("*/journal.sqlite")) and time.monotonic() < waiting_since + DEADLINE_S:
            time.sleep(0.1)
        time.sleep(5)  # rollouts are under way
        ended.send_signal(signal.SIGTERM)
        assert ended.wait(DEADLINE_S) == 75
    run(there, *NAT, "finetune", f"--config_file={config}", "--resume")
    assert json.loads((there / "runs" / "summary.json").read_text())["verdict"] is not None
