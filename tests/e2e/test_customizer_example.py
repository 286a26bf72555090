"""The toolkit's example of DPO on tic-tac-toe, with its own trainer and adapter, against a server with the routes."""

import json
import random
from pathlib import Path

import pytest

from fakes import dpo_tic_tac_toe
from fakes.customizer_server import FakeCustomizer
from fakes.dpo_tic_tac_toe.components import register_components
from fakes.finetuning_project import blank_plot
from fakes.openai_server import OpenAIServer, Say
from nat.config.load import parse_config
from nat.config.sources import read_tree
from nat.data_models.finetuning import FinetuneRunConfig
from nat.finetuning.runtime import run_finetuning
from nat.registry.catalog import pushed_catalog

pytestmark = pytest.mark.slow

CONFIG = Path(dpo_tic_tac_toe.__file__).with_name("config.yml")


async def test_the_example_trains_and_deploys(tmp_path, monkeypatch):
    """Its configuration is unchanged but for the polls: pairs, one job, the deployment by its name, and the files."""
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"game{n}", "question": "XO"[n % 2], "answer": "Win!"} for n in range(6)]
    (tmp_path / "data.json").write_text(json.dumps(rows))
    dice = random.Random(1)

    def move(request) -> Say:
        return Say(dice.choice([word for word in request.last_text.split() if word.isdigit()]))

    async with OpenAIServer(move) as serving, FakeCustomizer() as server:
        monkeypatch.setenv("NVIDIA_BASE_URL", serving.base_url)
        monkeypatch.setenv("CUSTOMIZER_HOST", server.base_url)
        monkeypatch.setenv("DATASTORE_HOST", server.base_url)
        tree = read_tree(CONFIG)
        tree["trainer_adapters"]["nemo_customizer_trainer_adapter"]["poll_interval_seconds"] = 0.01
        with pushed_catalog():
            register_components()
            result = await run_finetuning(FinetuneRunConfig(config_file=parse_config(tree)), plotter=blank_plot)
        (job,), (repository,) = server.jobs, server.repositories
        pairs = server.rows(repository, "training/training_file.jsonl")
    assert result.statuses[0].status == "completed"
    assert (job["hyperparameters"]["epochs"], job["hyperparameters"]["batch_size"]) == (5, 8)
    assert server.deployments[-1]["name"] == "player"
    assert [message["role"] for message in pairs[0]["prompt"]] == ["system", "user"]
    copy = tmp_path / ".tmp" / "datasets" / job["name"].removeprefix("nat-dpo-") / "training_file.jsonl"
    assert [json.loads(line) for line in copy.read_text().splitlines()] == pairs
    assert (result.run_dir.parent / "final_metrics.json").is_file()
