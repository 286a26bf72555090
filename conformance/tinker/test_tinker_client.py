"""`nat finetune` trains tic-tac-toe through Tinker servers, with the official client: ours, and SkyRL's JAX backend."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from conformance.environments import HOME, REPOSITORY, interpreter, outside, pip, requirements_in
from conformance.interop.serving import NAT, ports_of

from nat.wire.model_folder import num_parameters
from nat.wire.serving import API_KEY_VARIABLE

HERE = Path(__file__).parent
KEY = "tml-conformance-key"
DEADLINE_S = 3600
_OF_CLIENT = ("tinker", "distro", "h2", "hpack", "hyperframe", "orjson", "pyqwest")
"""The client, and what it needs that our own environment lacks."""


def client(version: str) -> Path:
    """The official client's packages, in a folder beside our environment."""
    folder = HOME / f"tinker-client-{version}"
    if not folder.is_dir():
        locked = requirements_in(HERE.parent / "requirements" / "tinker" / f"tinker-{version}.lock")
        wanted = [str(locked[name]) for name in _OF_CLIENT]
        pip(Path(sys.executable), "install", "-qq", "--no-deps", "--target", str(folder), *wanted)
    return folder


def finetune(
    folder: Path, version: str, *options: str, config: Path = HERE / "tic_tac_toe.yml", cwd: Path = REPOSITORY
) -> str:
    """Train in a process whose environment has the client; gives what it has printed."""
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(client(version))]).strip(os.pathsep)
    env = os.environ | {"TINKER_API_KEY": KEY, "TINKER_TELEMETRY": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, "-c", NAT, "finetune", f"--config_file={config}"]
    for key, value in {"finetuning.output_dir": str(folder), "eval.general.output_dir": str(folder / "eval")}.items():
        command += ["-o", key, value]
    done = subprocess.run(
        [*command, *options], cwd=cwd, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


def check(printed: str, folder: Path) -> None:
    """It improves with a verdict, and each update left its place on the server."""
    assert "Improved:" in printed, printed[-3000:]
    [checkpoint] = folder.glob("2*/checkpoints/latest")
    assert json.loads((checkpoint / "tinker.json").read_text())["state"].startswith("tinker://")
    print("\n" + next(line for line in printed.splitlines() if "Improved:" in line))


@contextlib.contextmanager
def ours(model: Path, folder: Path, *options: str) -> Iterator[str]:
    """Our server on a free port, with the model."""
    log = folder / "server.log"
    command = [sys.executable, "-c", NAT, "backend", "serve", "--protocol", "tinker", "--port", "0", "--threads", "1"]
    command += ["--model", str(model), "--output_dir", str(folder / "out"), *options]
    with log.open("w") as file:
        env = {**os.environ, API_KEY_VARIABLE: KEY}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True, env=env)
    try:
        yield f"http://127.0.0.1:{ports_of(process, log)['port']}"
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.parametrize("version", ["0.25.0", "0.38.0"])
def test_tic_tac_toe_improves_through_our_server(version: str, tmp_path: Path) -> None:
    """By sums over tokens, with a client of each wire's newest form; eight epochs would leave the verdict to chance."""
    with ours(REPOSITORY / "examples" / "tic_tac_toe" / "model", tmp_path) as url:
        longer = ["-o", "finetuning.num_epochs", "24", "-o", "finetuning.run_configuration.validation_interval", "24"]
        check(finetune(tmp_path / "run", version, "-o", "llms.player.base_url", url, *longer), tmp_path / "run")


@pytest.mark.parametrize("version", ["0.25.0", "0.38.0"])
def test_all_weights_improve_through_our_server(version: str, tmp_path: Path) -> None:
    """With either client, by rank 0; the best weights come back as a plain model."""
    settings = {"llms.player.lora": "null", "trainer_adapters.weights.training.learning_rate": "1e-3"}
    options = [text for key, value in settings.items() for text in ("-o", key, value)]
    with ours(REPOSITORY / "examples" / "tic_tac_toe" / "model", tmp_path, "--all_weights") as url:
        options += ["-o", "llms.player.base_url", url, "-o", "finetuning.num_epochs"]
        interval = ["-o", "finetuning.run_configuration.validation_interval"]
        check(finetune(tmp_path / "run", version, *options, "24", *interval, "24"), tmp_path / "run")
    [best] = tmp_path.glob("run/2*/best_model")
    assert not (best / "adapter_config.json").exists()
    assert num_parameters(best) == num_parameters(REPOSITORY / "examples" / "tic_tac_toe" / "model")


@contextlib.contextmanager
def skyrl(model: Path, folder: Path) -> Iterator[str]:
    """SkyRL's server on a free port, with the model."""
    python, package = HOME / "skyrl-py3.12" / "bin" / "python", HOME / "skyrl-0.4.0"
    make = [sys.executable, "-m", "conformance.environments", "skyrl"]
    subprocess.run(make, cwd=REPOSITORY, env=os.environ | {"CONFORMANCE_PYTHON": "3.12"}, check=True)
    if not package.is_dir():
        pip(python, "install", "-qq", "--no-deps", "--target", str(package), "skyrl==0.4.0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    backend = {
        "max_lora_adapters": 32,
        "max_lora_rank": 8,
        "sample_max_num_sequences": 64,
        "train_micro_batch_size": 64,
    }
    command = [python, HERE / "skyrl_server.py", "api", "--base-model", model, "--backend", "jax", "--port", str(port)]
    command += ["--database-url", f"sqlite:///{folder / 'db.sqlite'}", "--checkpoints-base", folder / "saved"]
    command += ["--backend-config", json.dumps(backend)]
    with (folder / "skyrl.log").open("w") as log:
        env = outside() | {"PYTHONPATH": str(package)}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
    try:
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(httpx.HTTPError):
                httpx.get(f"http://127.0.0.1:{port}/api/v1/healthz").raise_for_status()
                break
            waits = process.poll() is None and time.monotonic() < deadline
            assert waits, (folder / "skyrl.log").read_text()[-3000:]
            time.sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.skipif(interpreter("3.12") is None, reason="SkyRL needs Python 3.12")
def test_tic_tac_toe_improves_through_skyrl(tmp_path: Path) -> None:
    """By means over rows, which the advantages undo; the best weights come back as an adapter with all its modules."""
    model = HOME.parent / "tinker-qwen3"
    if not (model / "config.json").is_file():
        path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "examples" / "tic_tac_toe" / "src")])
        command = [sys.executable, "-m", "conformance.tinker.make_qwen3", str(model)]
        subprocess.run(command, check=True, cwd=REPOSITORY, env=os.environ | {"PYTHONPATH": path}, timeout=DEADLINE_S)
    with skyrl(model, tmp_path) as url:
        own = {"base_url": url, "base_model": str(model), "model": str(model)}
        options = [text for key, value in own.items() for text in ("-o", f"llms.player.{key}", value)]
        check(finetune(tmp_path / "run", "0.25.0", *options), tmp_path / "run")
    [best] = tmp_path.glob("run/2*/best_model/adapter_config.json")
    assert len(json.loads(best.read_text())["target_modules"]) == 7
