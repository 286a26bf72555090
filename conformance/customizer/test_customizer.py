"""Released clients of NeMo Customizer, unmodified, against the server of our tests: its routes are the service's."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from conformance.environments import outside, python_of

from fakes.customizer_server import FakeCustomizer
from nat.plugins.customizer.dpo.config import NeMoCustomizerHyperparameters

CLIENTS = Path(__file__).parent / "clients"
DEADLINE_S = 300
VARIABLES = {"DO_NOT_TRACK": "1", "HF_HUB_DISABLE_XET": "1"}
"""Without telemetry; large files go by Git LFS, since only the Hub itself speaks Xet."""
JOB = {
    "name": "nat-dpo-r1",
    "namespace": "team",
    "description": "NAT preference pairs of run r1",
    "config": "meta/llama-3.2-1b-instruct@v1.0.0+A100",
    "dataset": {"name": "nat-dpo-r1", "namespace": "team"},
    "output_model": "team/nat-dpo-r1",
    "hyperparameters": {**NeMoCustomizerHyperparameters().model_dump(), "seed": 0},
}
"""What our adapter sends; `tests/unit/plugins/customizer` holds it."""


async def run(script: str, environment: str, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run `clients/{script}.py` in its environment, beside the server; gives the JSON of its last line."""
    python = await asyncio.to_thread(python_of, environment)
    process = await asyncio.create_subprocess_exec(
        python,
        CLIENTS / f"{script}.py",
        cwd=folder,
        env={**outside(), **VARIABLES, "CUSTOMIZER": json.dumps(settings), "HF_HOME": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-6000:]
    return json.loads(output.decode().strip().splitlines()[-1])


@pytest.mark.parametrize("mode", ["regular", "lfs"])
@pytest.mark.parametrize("version", ["1.6.0", "1.9.0"])
async def test_the_plug_in_completes_its_route(version: str, mode: str, tmp_path: Path) -> None:
    """Namespaces, dataset, two files, job, polls and deployment: the unmodified plug-in ends with a trained model."""
    async with FakeCustomizer(token="secret", upload_mode=mode, other_deployments=2) as server:
        settings = {
            "entity_host": server.base_url,
            "datastore_host": server.base_url,
            "hf_token": "secret",
            "namespace": "team",
            "customization_config": JOB["config"],
            "deploy_on_completion": True,
            "poll_interval_seconds": 0.1,
        }
        status = await run("plug_in", f"customizer-{version}", settings, tmp_path)
        assert status["status"] == "completed", (status["message"], server.paths)
        rows = server.rows("team/nat-dpo", "training/training_file.jsonl")
        (job,) = server.jobs
    assert len(rows) == 8
    assert rows[0] == {"prompt": "move 0?", "chosen_response": "centre", "rejected_response": "edge"}
    assert job["hyperparameters"] == {k: v for k, v in JOB["hyperparameters"].items() if k != "seed"}
    assert server.deployments[-1]["status_details"]["status"] == "ready"


async def test_the_client_reads_every_answer(tmp_path: Path) -> None:
    """It parses records and errors, and its types have each key that our adapter sends."""
    async with FakeCustomizer(key="right", other_deployments=5, page_size=2) as server:
        found = await run("sdk", "microservices-1.5.0", {"url": server.base_url, "job": JOB}, tmp_path)
    assert found == {
        "namespace": "team",
        "dataset": "hf://datasets/team/pairs",
        "output_model": "team/nat-dpo-r1",
        "same": True,
        "listed": ["nat-dpo-r1"],
        "status": ["running", 50.0],
        "deployments": [*([f"other-{number}", "ready"] for number in range(5)), ["d", "pending"]],
        "canceled": "cust-1",
        "conflict": True,
        "missing": True,
        "stranger": True,
        "unknown": [[], [], []],
    }
