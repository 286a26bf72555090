import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from examples.planner_worker.make_model import SPLITS, questions
from safetensors.torch import load_file

from nat.cli.main import cli

EXAMPLE = Path(__file__).parents[1]


@pytest.mark.parametrize("split", SPLITS)
def test_the_data_is_the_scripts_output(split):
    """The data files equal what make_model.py writes."""
    lines = (EXAMPLE / "data" / f"{split}.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == questions()[split]


@pytest.mark.usefixtures("forked_processes")
def test_both_models_are_trained(tmp_path: Path, monkeypatch) -> None:
    """Each on its own calls, one with a reward of its own: both get other weights."""
    monkeypatch.chdir(EXAMPLE)
    options = {
        "finetuning.num_epochs": "2",
        "finetuning.output_dir": str(tmp_path),
        "finetuning.run_configuration": "null",
        "finetuning.trainer_adapters.worker": "{adapter: worker, reward: near}",
        "eval.evaluators.near": "{_type: numeric_closeness}",
        "llms.planner.threads": "1",
        "llms.worker.threads": "1",
    }
    words = [word for path, value in options.items() for word in ("-o", path, value)]
    result = CliRunner().invoke(cli, ["finetune", "--config_file=config.yml", *words])
    assert result.exit_code == 0, result.output
    folder = (tmp_path / "latest").resolve()
    start = load_file(EXAMPLE / "model/model.safetensors")
    for llm in ("planner", "worker"):
        assert f"-o llms.{llm}.model {folder / 'llms' / llm / 'model'}" in result.output
        trained = load_file(folder / "llms" / llm / "model/model.safetensors")
        assert any((trained[name] != start[name]).any() for name in start)
    metrics = json.loads((folder / "training_metrics.jsonl").read_text().splitlines()[-1])["metrics"]
    tokens = [metrics[f"train/{role}trained_tokens"] for role in ("planner/", "worker/", "")]
    assert tokens[0] > 0 < tokens[1]
    assert tokens[2] == tokens[0] + tokens[1]
