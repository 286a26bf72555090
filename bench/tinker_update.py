"""The round trip of an update: through our Tinker server with the official client, beside the embedded backend.

    python -m bench.tinker_update

Both train LoRA of rank 16 on the same 192 rows (`bench.learner`) by PPO's loss, with one optimizer step, over HTTP on
one machine; rounds of one, then of the other, after two that are not counted. The embedded job also packs the rows,
compares the sampler's log probabilities, keeps copies that could undo it, and checks the served weights.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median

from bench.learner import groups_of, model_of
from conformance.environments import outside, python_of

from nat.plugins.local.client import BackendClient
from nat.plugins.local.process import running_backend
from nat.wire.serving import API_KEY_VARIABLE, ServeOptions
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingJob, rows_of

ENVIRONMENT = "tinker-0.38.0"
CLIENT = Path(__file__).with_name("tinker_client.py")
NAT = "from nat.cli.main import run_cli; run_cli()"
KEY = "tml-bench-key"
WARM, ROUNDS = 2, 5
HEAD = """\
| through | update, s | spread, s | to an answer by the new weights, s | load |
|---|---:|---:|---:|---:|"""
Marks = list[tuple[float, float]]


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(prog="python -m bench.tinker_update", description=main.__doc__)
    parser.add_argument("--groups", type=int, default=24, help="of eight rows")
    options = parser.parse_args()
    groups = groups_of(Random(0), "update")[: options.groups]
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        model = model_of(Path(folder) / "model")
        loads = [os.getloadavg()[0]]
        embedded = asyncio.run(by_jobs(model, groups, Path(folder)))
        loads.append(os.getloadavg()[0])
        tinker = by_client(model, groups, Path(folder))
    ways = {"the embedded backend's jobs": embedded, f"{ENVIRONMENT} and our server": tinker}
    for (name, marks), load in zip(ways.items(), loads, strict=True):
        updates = [update for update, _ in marks]
        figures = f"{median(updates):.3f} | {max(updates) - min(updates):.3f} | {median(own for _, own in marks):.3f}"
        print(f"| {name} | {figures} | {load:.1f} |", flush=True)


async def by_jobs(model: Path, groups: list[TrainingGroup], folder: Path) -> Marks:
    """Jobs as `nat finetune` sends them; checkpoints are left out."""
    options = ServeOptions(
        model=model, output_dir=folder / "jobs", lora_rank=16, threads=1, save_every=1000, port=0, device="cpu"
    )
    config = TrainingConfig(algorithm="grpo", steps_per_batch=1, max_logprob_difference=1e9, max_kl=None)
    marks: Marks = []
    async with (
        running_backend(options, log_path=folder / "jobs.log", startup_timeout=300) as backend,
        BackendClient(backend.base_url, backend.api_key) as client,
    ):
        for number in range(WARM + ROUNDS):
            began = time.perf_counter()
            state = await client.submit(TrainingJob(id=f"job-{number}", groups=groups, config=config))
            while not state.status.final:
                state = await client.job(f"job-{number}", wait=20)
            assert state.status.value == "completed", state
            trained = time.perf_counter()
            body = {"model": options.name, "prompt": [5, 6], "max_tokens": 1}
            await client.send("POST", "/v1/completions", json=body)
            marks.append((trained - began, time.perf_counter() - trained))
    return marks[WARM:]


def by_client(model: Path, groups: list[TrainingGroup], folder: Path) -> Marks:
    """The official client, in its own environment."""
    rows = [
        (row.token_ids, [at for span in row.spans for at in range(span.start, span.stop)]) for row in rows_of(groups)
    ]
    with serving(model, folder) as env:
        command = [str(python_of(ENVIRONMENT)), str(CLIENT), str(WARM + ROUNDS)]
        said = subprocess.run(
            command, check=True, env=env, input=json.dumps(rows), stdout=subprocess.PIPE, text=True, timeout=900
        ).stdout
    found: Marks = json.loads(said.splitlines()[-1])
    return found[WARM:]


@contextmanager
def serving(model: Path, folder: Path) -> Iterator[dict[str, str]]:
    """The environment of clients, while the server runs."""
    command = [sys.executable, "-c", NAT, "backend", "serve", "--protocol", "tinker", "--model", str(model)]
    command += ["--port", "0", "--threads", "1", "--device", "cpu", "--output_dir", str(folder / "tinker")]
    env = {**os.environ, API_KEY_VARIABLE: KEY}
    with (folder / "tinker.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env)
    assert process.stdout is not None, "a pipe"
    try:
        ready = next((line for line in process.stdout if line.startswith("{")), "")
        if not ready:
            raise SystemExit(f"the server did not start:\n{(folder / 'tinker.log').read_text()[-2000:]}")
        url = f"http://127.0.0.1:{json.loads(ready)['port']}"
        yield outside() | {"TINKER_BASE_URL": url, "TINKER_API_KEY": KEY, "TINKER_TELEMETRY": "0"}
    finally:
        process.terminate()
        process.communicate(timeout=60)


if __name__ == "__main__":
    main()
