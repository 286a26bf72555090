import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from nat.cli.main import cli

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_processes")]

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "examples/openpipe_art/configs/finetune.yml"


@contextmanager
def art_server(output_dir: Path) -> Iterator[dict[str, int]]:
    """The server of the README's first terminal on free ports; gives them."""
    command = [sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()", "backend", "serve"]
    command += ["--model", str(ROOT / "examples/tic_tac_toe/model")]
    command += ["--port", "0", "--inference_port", "0", "--output_dir", str(output_dir), "--exit_with_parent"]
    environment = {name: value for name, value in os.environ.items() if name != "NAT_BACKEND_API_KEY"}
    log = output_dir.with_suffix(".log")
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        ready = server.stdout.readline()
        assert ready, log.read_text()
        yield json.loads(ready)
        server.stdin.close()


@pytest.fixture
def ports(tmp_path: Path, forked_processes: None) -> Iterator[dict[str, int]]:
    with art_server(tmp_path / "server") as ports:
        yield ports


def test_the_configuration_of_the_guide_trains(ports: dict[str, int], tmp_path: Path, monkeypatch) -> None:
    """The file runs with other ports and fewer, larger steps; the model improves, and its weights stay there."""
    monkeypatch.chdir(ROOT)
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text("\n".join((ROOT / "examples/tic_tac_toe/data/validation.jsonl").read_text().splitlines()[:120]))
    overrides = {
        "llms.training_llm.base_url": f"http://localhost:{ports['inference_port']}/v1",
        "trainer_adapters.art_adapter.backend.port": str(ports["port"]),
        "trainer_adapters.art_adapter.training.learning_rate": "3e-3",
        "finetuning.num_epochs": "2",
        "finetuning.output_dir": str(tmp_path / "run"),
    }
    options = [word for path, value in overrides.items() for word in ("-o", path, value)]
    result = CliRunner().invoke(
        cli, ["finetune", f"--config_file={CONFIG}", f"--validation_dataset={held_out}", *options]
    )
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "run/latest/summary.json").read_text())
    assert summary["verdict"] == "improved"
    steps = sorted(path.name for path in (tmp_path / "server/tic_tac_toe/models/tic_tac_toe_run/checkpoints").iterdir())
    assert "0002" in steps
