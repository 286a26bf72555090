"""`nat finetune` on four games of tic-tac-toe whose updates a trainer program makes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
GAMES = ROOT / "examples/tic_tac_toe"


def nat(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command at the repository's root."""
    command = [sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)


def write_config(folder: Path, command: list[str], *, epochs: int, validates: bool = False) -> Path:
    """A configuration whose runs are in `runs` of the folder."""
    config = yaml.safe_load((GAMES / "configs/finetune.yml").read_text())
    config["eval"]["general"]["dataset"]["file_path"] = _games(folder, "train")
    config["trainer_adapters"]["weights"] = {
        "_type": "command_trainer_adapter",
        "llm": "player",
        "command": command,
        "training": {"algorithm": "grpo"},
    }
    config["llms"]["player"]["threads"] = 1
    held_out: dict[str, Any] = {"validation_dataset": _games(folder, "validation")} if validates else {}
    config["finetuning"] |= {"num_epochs": epochs, "output_dir": str(folder / "runs"), "run_configuration": held_out}
    file = folder / "config.yml"
    file.write_text(yaml.safe_dump(config))
    return file


def run_of(folder: Path) -> Path:
    """The one run of the folder."""
    (run,) = (path for path in (folder / "runs").iterdir() if path.is_dir() and not path.is_symlink())
    return run


def assert_verdict(folder: Path, command: list[str], *, epochs: int) -> None:
    """A run ends with its verdict, and `nat diagnose` has one of it, too."""
    config = write_config(folder, command, epochs=epochs, validates=True)
    done = nat("finetune", f"--config_file={config}")
    assert done.returncode == 0, done.stderr[-4000:]
    assert any(verdict in done.stdout for verdict in ("Improved: ", "No improvement shown: ", "Worse: "))
    assert json.loads((run_of(folder) / "summary.json").read_text())["verdict"]
    diagnosed = nat("diagnose", str(run_of(folder)))
    assert diagnosed.returncode == 0, diagnosed.stderr
    assert diagnosed.stdout


def _games(folder: Path, part: str) -> str:
    file = folder / f"{part}.jsonl"
    file.write_text("\n".join((GAMES / f"data/{part}.jsonl").read_text().splitlines()[:4]))
    return str(file)
