"""A whole run through vLLM: tic-tac-toe is learned to its verdict, with LoRA and with all weights."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.engines.vllm import vllm_command
from conformance.environments import REPOSITORY

pytestmark = pytest.mark.large

CONFIG = "examples/tic_tac_toe/configs/finetune.yml"
HELD_OUT = 100
DEADLINE_S = 3600
TRAINING = "trainer_adapters.weights.training"
NAT = "from nat.cli.main import run_cli; run_cli()"


@pytest.mark.parametrize(("rank", "learning_rate"), [(8, 5.0e-3), (None, 5.0e-4)])
def test_a_run_improves(tmp_path: Path, rank: int | None, learning_rate: float) -> None:
    """The verdict is `improved`, each update was proven on vLLM, and every call carries the version that made it."""
    held_out = tmp_path / "held_out.jsonl"
    lines = (REPOSITORY / "examples/tic_tac_toe/data/validation.jsonl").read_text().splitlines(keepends=True)
    held_out.write_text("".join(lines[:HELD_OUT]))
    settings = {
        "llms.player.engine": "vllm",
        "llms.player.vllm_command": vllm_command(),
        "llms.player.startup_timeout": 900,
        f"{TRAINING}.learning_rate": learning_rate,
        f"{TRAINING}.decay_steps": 60,
        "finetuning.num_epochs": 12,
        "finetuning.output_dir": str(tmp_path / "runs"),
    }
    if rank is not None:
        settings["llms.player.lora.rank"] = rank
    overrides = [text for key, value in settings.items() for text in ("-o", key, str(value))]
    command = [sys.executable, "-c", NAT, "finetune", f"--config_file={CONFIG}", *overrides]
    command += [f"--validation_dataset={held_out}", "--validation_interval=50"]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Improved:" in ended.stdout
    metrics = [json.loads(line) for line in (tmp_path / "runs/latest/training_metrics.jsonl").read_text().splitlines()]
    updates = [epoch["metrics"] for epoch in metrics]
    proven = [update["train/served_diff_max"] for update in updates if "train/served_diff_max" in update]
    assert proven
    assert max(proven) < 1e-3
