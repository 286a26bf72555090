"""Assumptions of the benches."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from bench.ceiling import passes, rows_of, seconds_of
from bench.load import Load, play
from bench.process_tree import measured
from bench.report import write_rows
from bench.servers import Limits, our_backend
from bench.shapes import TEMPLATE_TOKENS, checkpoint, words

from nat.backend.model_loader import load_model
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


def test_a_shape_is_a_checkpoint_of_exact_lengths(tmp_path: Path):
    """A word is a token, an answer encodes to the words that were sampled, and a shape is written once."""
    folder = checkpoint("tiny", cache=tmp_path)
    written = folder.stat().st_mtime_ns
    loaded = load_model(folder, device="cpu")
    text = words(Random(0), 100, loaded.vocab_size)  # noqa: S311 - a sample, not a secret
    prompt = loaded.tokenizer.render_chat([{"role": "user", "content": text}])
    assert len(prompt) == 100 + TEMPLATE_TOKENS
    assert loaded.tokenizer.decode(prompt) == text
    assert loaded.num_parameters == 432_000
    assert checkpoint("tiny", cache=tmp_path).stat().st_mtime_ns == written


def test_a_load_is_measured_on_our_backend(tmp_path: Path):
    """Conversations run to their end; time, CPU time and memory of the server's processes are measured."""
    load = Load(chats=2, prompt=16, answer=4, turns=2)
    limits = Limits("float32", load.chats, load.longest)
    with our_backend(checkpoint("tiny", cache=tmp_path), limits) as server, measured(server.pid) as usage:
        play(server, load, seed="0", vocabulary=18)
    assert load.sampled == 16
    assert usage.seconds > 0
    assert usage.cores > 0
    assert usage.peak_mb > 100


def test_a_load_takes_at_least_the_time_of_its_products():
    """Twice the answers take more of the same products."""
    short, long = Load(2, 16, 4), Load(2, 16, 8)
    measured = passes("tiny", "float32", rows_of(short))
    assert 0 < seconds_of(short, measured) < seconds_of(long, measured)


def test_a_row_replaces_the_row_of_its_case(tmp_path: Path):
    """The other rows and the rest of the page stay; a page without a place for the table is an error."""
    page = tmp_path / "page.md"
    head = ["| case | result |", "|---|---|"]
    before = ["| a | 1 |", "| b | 2 |"]
    page.write_text("\n".join(["x", "<!-- bench t -->", *head, *before, "<!-- end of bench t -->", "y"]))
    write_rows("t", head, ["| b | 3 |", "| c | 4 |"], page)
    after = ["| a | 1 |", "| b | 3 |", "| c | 4 |"]
    assert page.read_text().splitlines() == ["x", "<!-- bench t -->", *head, *after, "<!-- end of bench t -->", "y"]
    with pytest.raises(SystemExit, match="has no place for the table"):
        write_rows("other", head, [], page)


def test_the_bench_of_a_gpu_runs_on_a_cpu(tmp_path: Path):
    """Sampler, learner and epoch are measured; nothing fails or is left out."""
    sizes = ["--chats", "2", "--lengths", "32", "--tokens", "256"]
    command = [sys.executable, "-m", "bench.gpu", "--device=cpu", "--shapes", "tiny", "--mode", "lora", *sizes]
    subprocess.run([*command, f"--out={tmp_path}/gpu.json"], check=True, capture_output=True)  # noqa: S603 - ours
    found = json.loads((tmp_path / "gpu.json").read_text())["figures"]
    assert [figure["part"] for figure in found] == ["sampler", "learner", "epoch"]
    assert not [figure for figure in found if "error" in figure]
    assert found[-1]["status"] == "completed"
