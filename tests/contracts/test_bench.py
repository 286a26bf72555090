"""Assumptions of the benches."""

import sys
from pathlib import Path

from nat.plugins.local.client import BackendClient
from nat.plugins.local.process import running_backend
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingJob, TrainingRollout, TrainingRow


async def test_the_stub_backend_answers_the_harness(tmp_path: Path):
    """The bench of long runs needs an answer to each request of the adapter, in the form that the client reads."""
    row = TrainingRow(token_ids=[1, 2], logprobs=[None, -1.0])
    group = TrainingGroup(id="a", rollouts=[TrainingRollout(reward=1.0, rows=[row])])
    command = (sys.executable, "-m", "bench.stub_backend")
    log = tmp_path / "backend.log"
    async with (
        running_backend([str(tmp_path)], log_path=log, startup_timeout=60, command=command) as backend,
        BackendClient(backend.base_url, backend.api_key) as client,
    ):
        assert await client.healthy()
        assert (await client.resolve(TrainingConfig())).algorithm == "lite_ppo"
        assert (await client.submit(TrainingJob(id="job", groups=[group]))).status.final
        assert (await client.job("job", wait=1)).id == "job"
        assert (await client.keep_best()).policy_version == "stub@0"
        exported = await client.export("model")
    assert Path(exported.path).parts[-2:] == ("exports", "model")
