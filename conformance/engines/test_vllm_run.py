"""Whole runs through vLLM: tic-tac-toe is learned to its verdict, and a killed vLLM ends a run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conformance.engines.vllm import CPU_ARGS, servers, vllm_command
from conformance.environments import REPOSITORY

pytestmark = pytest.mark.large

CONFIG = "examples/tic_tac_toe/configs/finetune.yml"
HELD_OUT = 100
DEADLINE_S = 3600
RANK = 8
TRAINING = "trainer_adapters.weights.training"
NAT = "from nat.cli.main import run_cli; run_cli()"


def command(folder: Path, *, learning_rate: float) -> list[str]:
    """The command of a run that writes below the folder."""
    held_out = folder / "held_out.jsonl"
    lines = (REPOSITORY / "examples/tic_tac_toe/data/validation.jsonl").read_text().splitlines(keepends=True)
    held_out.write_text("".join(lines[:HELD_OUT]))
    settings = {
        "llms.player.engine": "vllm",
        "llms.player.vllm_command": vllm_command(),
        "llms.player.vllm_args": CPU_ARGS,
        "llms.player.lora.rank": RANK,
        "llms.player.startup_timeout": 900,
        f"{TRAINING}.learning_rate": learning_rate,
        f"{TRAINING}.decay_steps": 60,
        "finetuning.num_epochs": 12,
        "finetuning.output_dir": str(folder / "runs"),
    }
    overrides = [text for key, value in settings.items() for text in ("-o", key, str(value))]
    nat = [sys.executable, "-c", NAT, "finetune", f"--config_file={CONFIG}", *overrides]
    return [*nat, f"--validation_dataset={held_out}", "--validation_interval=50"]


def test_a_run_improves(tmp_path: Path) -> None:
    """The verdict is `improved`, each update was proven on vLLM, and no batch mixes two versions."""
    ended = subprocess.run(
        command(tmp_path, learning_rate=5.0e-3),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Improved:" in ended.stdout
    lines = (tmp_path / "runs/latest/training_metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line)["metrics"] for line in lines]
    assert {epoch["drift/policy_versions"] for epoch in metrics} == {1.0}
    assert max(epoch["train/served_diff_max"] for epoch in metrics) < 1e-3
    assert max(epoch["train/logprob_diff_max"] for epoch in metrics) < 1e-3


def test_a_killed_vllm_ends_the_run(tmp_path: Path) -> None:
    """The run ends with its name, the end of its log, and a code other than 0."""
    run = command(tmp_path, learning_rate=5.0e-3)
    with subprocess.Popen(run, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        deadline = time.monotonic() + DEADLINE_S
        while not (tmp_path / "runs/latest/training_metrics.jsonl").exists() and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.5)
        own = [pid for pid, words in servers(REPOSITORY / "examples/tic_tac_toe/model") if _is_below(pid, process.pid)]
        os.kill(own[0], signal.SIGKILL)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "vLLM was killed (SIGKILL)" in output
    assert "checkpoints are complete" in output


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    """SIGKILL of `nat` ends the backend and vLLM, too; with `--resume`, each epoch is trained once and handed over."""
    run = [*command(tmp_path, learning_rate=5.0e-3), "-o", "finetuning.num_epochs", "3"]
    log = tmp_path / "output"
    with log.open("wb") as output, subprocess.Popen(run, cwd=REPOSITORY, stdout=output, stderr=output) as process:
        deadline = time.monotonic() + DEADLINE_S
        while not (tmp_path / "runs/latest/training_metrics.jsonl").exists() and time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            time.sleep(0.5)
        process.kill()
    run_dir = (tmp_path / "runs/latest").resolve()
    goes_on = [*run[:4], "--resume", str(run_dir), *run[4:]]
    ended = subprocess.run(goes_on, cwd=REPOSITORY, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = (run_dir / "training_metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2]
    state = json.loads((run_dir / "checkpoints/latest/state.json").read_text())
    assert state["job"]["state"]["id"] == f"{run_dir.name}-000003"


def _is_below(pid: int, ancestor: int) -> bool:
    """True if a process descends from another one."""
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False
