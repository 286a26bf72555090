"""The official clients of Tinker, 0.20 to 0.38, and recipes of its cookbook train through our server, unmodified."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.environments import REPOSITORY, outside, pip, python_of
from conformance.interop.serving import NAT, ports_of

from fakes.tiny_model import make_tiny_model
from nat.wire.serving import API_KEY_VARIABLE

CLIENTS = Path(__file__).with_name("clients")
KEY = "tml-conformance-key"
DEADLINE_S = 300
CONTEXT = 4096


@contextlib.contextmanager
def serving(model: Path, folder: Path) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """The environment for clients of our server on a free port, and its process."""
    command = [sys.executable, "-c", NAT, "backend", "serve", "--protocol", "tinker", "--model", str(model)]
    command += ["--port", "0", "--threads", "1", "--output_dir", str(folder / "out")]
    log = folder / "server.log"
    with log.open("a") as file:
        env = {**os.environ, API_KEY_VARIABLE: KEY}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True, env=env)
    try:
        url = f"http://127.0.0.1:{ports_of(process, log)['port']}"
        offline = {"HF_HUB_OFFLINE": "1", "TINKER_TELEMETRY": "0", "OMP_NUM_THREADS": "1"}
        yield outside() | {"TINKER_BASE_URL": url, "TINKER_API_KEY": KEY} | offline, process
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)


def said(command: list[str | Path], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with room for a conversation."""
    folder = make_tiny_model(tmp_path_factory.mktemp("model") / "tiny-qwen2", spread=2.0)
    for name, key in (("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length")):
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text()) | {key: CONTEXT}))
    return folder


@pytest.mark.parametrize("environment", ["tinker-0.20.0", "tinker-0.25.0", "tinker-0.38.0"])
def test_an_official_client_trains_and_resumes_after_a_kill(environment: str, tiny_model: Path, tmp_path: Path) -> None:
    """The rewarded token becomes likely; sampler and learner agree; a kill loses nothing that was saved."""
    python = python_of(environment)
    with serving(tiny_model, tmp_path) as (env, process):
        seen = json.loads(said([python, CLIENTS / "train.py", tiny_model.name], env).splitlines()[-1])
        process.kill()
    assert seen["chances"][-1] > seen["chances"][0] + 0.3
    assert seen["gap"] < 1e-4
    assert seen["metrics"]["grad_norm"] > 0
    assert "'stable_reinforce' is not supported" in seen["refused"]["loss"]
    assert "loss_fn_config.temperature" in seen["refused"]["setting"]
    assert "other/model" in seen["refused"]["base"]
    assert seen["ids"] == (32 if environment == "tinker-0.38.0" else 1)
    with serving(tiny_model, tmp_path) as (env, _):
        found = json.loads(said([python, CLIENTS / "resume.py", seen["state"], seen["weights"]], env).splitlines()[-1])
    assert found["after"] == pytest.approx(seen["after"], abs=1e-5)
    assert len(found["tokens"]) == 4
    print(f"\n{environment}: the rewarded token's share {seen['chances'][0]:.3f} → {seen['chances'][-1]:.3f}")


@pytest.fixture(scope="session")
def cookbook() -> tuple[Path, Path]:
    """An interpreter with what the cookbook needs, and the cookbook itself."""
    python, folder = python_of("cookbook-0.6.1"), REPOSITORY / ".tmp" / "environments" / "tinker_cookbook-0.6.1"
    if not (folder / "tinker_cookbook").is_dir():
        pip(python, "install", "-qq", "--no-deps", "--target", str(folder), "tinker-cookbook==0.6.1")
    return python, folder


def metrics(folder: Path, name: str) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line[name] for line in lines if name in line]


def test_the_cookbook_s_supervised_recipe_learns(cookbook: tuple[Path, Path], tiny_model: Path, tmp_path: Path) -> None:
    """`chat_sl` on the conversations that the cookbook ships: the loss halves, and checkpoints are saved."""
    python, folder = cookbook
    data = folder / "tinker_cookbook" / "example_data" / "conversations.jsonl"
    with serving(tiny_model, tmp_path) as (env, _):
        command = [python, "-m", "tinker_cookbook.recipes.chat_sl.train", f"model_name={tiny_model}", f"dataset={data}"]
        command += ["renderer_name=role_colon", "batch_size=4", "learning_rate=1e-2", "lr_schedule=constant"]
        command += ["max_length=2048", "num_epochs=2", "eval_every=0", "save_every=16", f"log_path={tmp_path / 'log'}"]
        said(command, env | {"PYTHONPATH": str(folder)})
    losses = metrics(tmp_path / "log", "train_mean_nll")
    assert losses[-1] < losses[0] / 2
    assert (tmp_path / "log" / "checkpoints.jsonl").read_text().count("tinker://") >= 3
    print(f"\nchat_sl: loss {losses[0]:.2f} → {losses[-1]:.2f} in {len(losses)} steps")


def test_the_cookbook_s_game_is_played_with_exact_tokens(
    cookbook: tuple[Path, Path], tiny_model: Path, tmp_path: Path
) -> None:
    """`guess_number`, RL over several turns: the cookbook's own KL between sampler and learner is zero."""
    python, folder = cookbook
    with serving(tiny_model, tmp_path) as (env, _):
        recipe = "tinker_cookbook.recipes.multiplayer_rl.guess_number.train"
        command = [python, "-m", recipe, f"model_name={tiny_model}", "renderer_name=role_colon", "group_size=4"]
        command += ["batch_size=4", "max_tokens=8", "max_steps=2", "eval_every=0", "save_every=1"]
        said([*command, f"log_path={tmp_path / 'log'}", "learning_rate=1e-3"], env | {"PYTHONPATH": str(folder)})
    assert max(map(abs, metrics(tmp_path / "log", "optim/kl_sample_train_v2"))) < 1e-5
    assert metrics(tmp_path / "log", "env/all/turns_per_episode") == [10.0, 10.0]
