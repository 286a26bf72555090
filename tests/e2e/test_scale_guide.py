"""`nat finetune --dry_run` plans each configuration of the guide for many GPUs, on the hardware of this test."""

import asyncio

import pytest
import yaml

from e2e.doc_pages import ROOT, Page
from fakes.art_server import FakeArtServer
from fakes.finetuning_project import Coin
from fakes.nat_here import nat_here
from fakes.vllm_server import FakeVllm

BLOCKS = {block.file_name: block for block in Page(ROOT / "docs" / "scale" / "index.md").blocks if block.file_name}


@pytest.fixture
def written(tmp_path):
    """Writes a block's configuration with what this machine has instead of the guide's hardware."""

    def write(name, change):
        tree = yaml.safe_load(BLOCKS[name].text)
        tree["base"] = str(ROOT / tree["base"])
        change(tree)
        data = ROOT / "examples" / "tic_tac_toe" / "data"
        tree["eval"] = {"general": {"dataset": {"file_path": str(data / "train.jsonl")}}}
        held_out = {"validation_dataset": str(data / "validation.jsonl")}
        tree.setdefault("finetuning", {})["run_configuration"] = held_out
        (tmp_path / name).write_text(yaml.safe_dump(tree))
        return tmp_path / name

    return write


def test_the_guide_has_these_configurations():
    """A new one needs a test here."""
    assert set(BLOCKS) == {"eight_gpus.yml", "two_nodes.yml"}


def test_eight_gpus_are_planned_as_processes_where_there_are_none(written, tmp_path):
    """With vLLM at an address instead of a command, and a CPU instead of GPUs, the plan says what runs where."""
    model = ROOT / "examples" / "tic_tac_toe" / "model"
    with FakeVllm(model).running() as vllm:

        def change(tree):
            player = tree["llms"]["player"]
            assert (player.pop("vllm_command"), player.pop("tensor_parallel")) == ("/opt/vllm/bin/vllm serve", 2)
            player |= {"model": str(model), "vllm_url": vllm.url, "device": "cpu"}

        config = written("eight_gpus.yml", change)
        done = nat_here("finetune", f"--config_file={config}", "--dry_run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"trains on cpu, 6 processes; vLLM samples at {vllm.url}" in done.stdout


async def test_two_nodes_are_planned_with_the_server_of_the_first(written, tmp_path, monkeypatch):
    """With this process instead of Ray's, which `make ray` has."""
    monkeypatch.setenv("HEAD", "127.0.0.1")
    monkeypatch.setenv("NAT_BACKEND_API_KEY", "a-key")
    async with FakeArtServer(Coin()) as server:

        def change(tree):
            tree["llms"]["training_llm"]["base_url"] = server.inference.base_url
            tree["trainer_adapters"]["art_adapter"]["backend"]["port"] = server.port
            assert tree["finetuning"].pop("rollouts") == {"ray": "auto", "workers": 8}

        config = written("two_nodes.yml", change)
        arguments = "finetune", f"--config_file={config}", "--dry_run"
        done = await asyncio.to_thread(nat_here, *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "openpipe_art_traj_builder → openpipe_art_trainer_adapter" in done.stdout
