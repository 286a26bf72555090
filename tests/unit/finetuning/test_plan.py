import json
import sys

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.config.sources import parse_yaml
from nat.data_models.finetuning import FinetuneRunConfig
from nat.errors import ConfigError
from nat.finetuning.plan import resolve
from nat.finetuning.probe import probe
from nat.project.new_project import SHARED

MODEL = "examples/tic_tac_toe/model"
SHORT = """
llms:
  student: {_type: local, model: %(model)s, max_tokens: 64}
workflow: {_type: command, name: speaker, llm: student, command: ./speak}
eval:
  general:
    dataset: {_type: jsonl, file_path: %(data)s}
  evaluators:
    right: {_type: exact_match}
"""
LONG = """
trajectory_builders:
  rollouts: {_type: local_traj_builder}
trainer_adapters:
  weights: {_type: local_trainer_adapter, llm: student}
trainers:
  trainer: {_type: local_trainer}
finetuning:
  enabled: true
  trainer: trainer
  trajectory_builder: rollouts
  trainer_adapter: weights
  reward_function: {name: right}
"""
FINETUNING = "finetuning: {enabled: true, reward_function: {name: right}}\n"
DATA = SHARED / "data" / "train.jsonl"


async def planned(folder, text, *override):
    file = folder / "config.yml"
    file.write_text(text % {"model": MODEL, "data": DATA})
    override = (("finetuning.output_dir", str(folder / "runs")), *override)
    return await resolve(FinetuneRunConfig(config_file=file, override=override))


async def test_the_short_form_means_the_long_one(tmp_path):
    """Both resolve to the same plan, and the run records the long form."""
    short = await planned(tmp_path, SHORT + FINETUNING)
    assert short == await planned(tmp_path, SHORT + LONG)
    assert (short.students, short.config.finetuning.target_model) == (("student",), "student")
    recorded = parse_yaml(short.config_text)
    assert recorded["trainer_adapters"]["weights"]["llm"] == "student"
    assert recorded["finetuning"]["trainer"] == "trainer"


async def test_a_run_without_its_components_is_refused_once(tmp_path):
    """What keeps its parts from following is one finding, for a run as for a probe."""
    remote = ("llms.student", "{_type: openai, model_name: gpt}")
    with pytest.raises(ConfigError) as caught:
        await planned(tmp_path, SHORT + FINETUNING, remote)
    assert [found.partition(":")[0] for found in caught.value.findings] == ["finetuning.trainer_adapter"]
    given = FinetuneRunConfig(config_file=tmp_path / "config.yml", override=(remote,))
    with pytest.raises(ConfigError) as of_probe:
        await probe(given)
    assert of_probe.value.findings == caught.value.findings


@pytest.mark.parametrize("name", ["command", "speaker", "<workflow>"])
async def test_the_workflow_is_a_target_by_its_names(tmp_path, name):
    """Its `_type` and its `name` mean the whole workflow, as `<workflow>` does, without a warning."""
    plan = await planned(tmp_path, SHORT + FINETUNING, ("finetuning.target_functions", f"[{name}]"))
    assert plan.finetuning.target_functions == ["<workflow>"]
    assert not [text for text in plan.warnings if "target_functions" in text]


READER = """
import json
from pathlib import Path


def rows(file_path):
    reads = Path(f"{file_path}.reads")
    reads.write_text((reads.read_text() if reads.exists() else "") + "read\\n")
    return json.loads(Path(file_path).read_text())
"""


async def test_a_run_reads_each_dataset_once(tmp_path, monkeypatch):
    """All passes of two epochs and of the validations play the rows that the plan was made from."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "reader.py").write_text(READER)
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        dataset = {"_type": "custom", "file_path": str(project.dataset), "function": f"{tmp_path}/reader.py:rows"}
        project.config["eval"]["general"]["dataset"] = dataset
        (tmp_path / "validation.yml").write_text(json.dumps(project.config))
        files = {"validation_dataset": str(project.held_out), "validation_config_file": f"{tmp_path}/validation.yml"}
        with project.registered():
            await project.run(**files)
    for file in (project.dataset, project.held_out):
        assert file.with_name(f"{file.name}.reads").read_text() == "read\n"
