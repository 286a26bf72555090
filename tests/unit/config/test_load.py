import logging
import sys
from pathlib import Path

import pytest

from fakes.guide_components import GUIDE_YAML, MyTrainerAdapterConfig, register_guide_components
from nat.cli.main import exit_code
from nat.config import dump_resolved, load_config, parse_config
from nat.config.sources import parse_yaml
from nat.data_models.component_ref import EvaluatorRef, TrainerRef
from nat.data_models.function import FunctionBaseConfig
from nat.errors import ConfigError
from nat.registry.catalog import pushed_catalog

ENVIRON = {"TRAINING_API_KEY": "sk-very-secret"}


@pytest.fixture(autouse=True)
def guide():
    with pushed_catalog():
        register_guide_components()
        yield


def findings_of(text: str, *overrides, environ=ENVIRON) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(parse_yaml(text), overrides, environ=environ)
    return caught.value.findings


def changed(**sections) -> str:
    tree = parse_yaml(GUIDE_YAML)
    tree.update(sections)
    return str(tree)


def test_the_guides_yaml_loads(tmp_path):
    """The guide's complete YAML loads with the guide's own classes."""
    file = tmp_path / "config.yml"
    file.write_text(GUIDE_YAML)
    config = load_config(file, environ=ENVIRON)
    adapter = config.trainer_adapters["my_adapter"]
    assert isinstance(adapter, MyTrainerAdapterConfig)
    assert adapter.backend.api_key == "sk-very-secret"
    assert adapter.backend.learning_rate == 1e-5
    assert config.trajectory_builders["my_builder"].num_generations == 4
    assert config.finetuning.trainer == "my_trainer"
    assert isinstance(config.finetuning.trainer, TrainerRef)
    assert isinstance(config.finetuning.reward_function.name, EvaluatorRef)
    assert config.eval.general.output_dir == Path(".tmp/finetuning/eval")
    assert config.eval.general.dataset.static_type() == "json"
    assert config.workflow.llm == "my_model"


def test_every_error_at_once():
    """One exception has all wrong keys, types, values, names and variables of a file, with paths."""
    found = findings_of(
        """
llms:
  my_model: {_type: openai, model_name: gpt-4, base_ulr: x}
  other: {_type: openia}
workflow: {_type: my_agent_workflow, llm: my_modle}
trajectory_builders:
  my_builder: {_type: my_traj_builder, num_generations: 0}
trainer_adapters:
  my_adapter: {_type: my_trainer_adapter, backend: {endpoint: http://x, api_key: "${NOT_SET}", batchsize: x}}
trainers:
  my_trainer: {}
evall: {general: {}}
finetuning: {enabled: true, trainer: my_trainr, trajectory_builder: my_builder, trainer_adapter: my_adapter}
""",
    )
    by_path = dict(finding.split(": ", 1) for finding in found)
    assert "Did you mean 'base_url'?" in by_path["llms.my_model.base_ulr"]
    assert "Did you mean 'openai'?" in by_path["llms.other._type"]
    assert "Did you mean 'my_model'?" in by_path["workflow.llm"]
    assert "greater than or equal to 1; got 0" in by_path["trajectory_builders.my_builder.num_generations"]
    assert "NOT_SET is not set" in by_path["trainer_adapters.my_adapter.backend.api_key"]
    assert "Registered:" in by_path["trainers.my_trainer._type"]
    assert "Did you mean 'eval'?" in by_path["evall"]
    assert "Did you mean 'my_trainer'?" in by_path["finetuning.trainer"]


def test_overrides_reach_everything():
    """`-o` changes components, sections and lists; variables in it are filled in."""
    overrides = [
        ("trainer_adapters.my_adapter.backend.learning_rate", "3e-4"),
        ("finetuning.target_functions", "[a, b]"),
        ("finetuning.target_functions.1", "c"),
        ("llms.my_model.api_key", "${TRAINING_API_KEY}"),
    ]
    config = parse_config(parse_yaml(GUIDE_YAML), overrides, environ=ENVIRON)
    assert config.trainer_adapters["my_adapter"].backend.learning_rate == 3e-4
    assert config.finetuning.target_functions == ["a", "c"]
    assert config.llms["my_model"].api_key.get_secret_value() == "sk-very-secret"


def test_a_number_in_the_environment_can_be_text():
    """A numeric value of a variable reaches a text field unchanged."""
    config = parse_config(parse_yaml(GUIDE_YAML), environ={"TRAINING_API_KEY": "12345"})
    assert config.trainer_adapters["my_adapter"].backend.api_key == "12345"
    config = parse_config(parse_yaml(GUIDE_YAML), [("finetuning.target_model", "${X}")], environ={**ENVIRON, "X": "7"})
    assert config.finetuning.target_model == "7"


def test_wrong_secrets_are_not_shown():
    """An error about a key does not show it."""
    found = findings_of(changed(llms={"my_model": {"_type": "openai", "model_name": "x", "api_key": 123456}}))
    assert found[0].startswith("llms.my_model.api_key: ")
    assert "123456" not in found[0]


@pytest.mark.parametrize("section", ["embedders", "memory", "retrievers", "object_stores", "function_groups"])
def test_sections_of_the_wider_toolkit_get_a_clear_error(section):
    """A YAML with sections of the wider toolkit does not load; the error leads to the page about it."""
    [found, *_] = findings_of(changed(**{section: {"x": {"_type": "y"}}}))
    assert "not part of this project" in found
    assert "docs/from/nat.md" in found
    assert parse_config(parse_yaml(changed(**{section: {}})), environ=ENVIRON)


def test_keys_without_effect_are_reported(caplog):
    """Keys that do not affect finetuning are allowed, with a warning."""
    tree = parse_yaml(changed(general={"use_uvloop": True, "telemetry": {"logging": {}}}))
    with caplog.at_level(logging.WARNING, logger="nat.config"):
        parse_config(tree, environ=ENVIRON)
    assert caplog.messages == ["general.use_uvloop has no effect here", "general.telemetry.logging has no effect here"]


def test_the_resolved_config_has_no_secrets_and_loads_again():
    """The config that a run saves has every value but the secrets, and is valid YAML."""
    config = parse_config(
        parse_yaml(GUIDE_YAML),
        [("llms.my_model.api_key", "sk-other"), ("llms.my_model.base_url", "http://user:pass@host/v1")],
        environ=ENVIRON,
    )
    text = dump_resolved(config)
    for secret in ("sk-very-secret", "sk-other", "user:pass"):
        assert secret not in text
    again = parse_config(parse_yaml(text), environ={})
    assert again.finetuning == config.finetuning
    assert again.trajectory_builders == config.trajectory_builders


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    """In a YAML, its base and its imports, and in an option, where no shell expands it after `=`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "home_agent.py").touch()
    (tmp_path / "base.yml").write_text("llms: {student: {_type: local, model: ~/model}}")
    (tmp_path / "top.yml").write_text(
        "{base: ~/base.yml, imports: [~/home_agent.py],"
        "eval: {general: {dataset: {_type: csv, file_path: ~/rows.csv}}},"
        "finetuning: {output_dir: ~/runs, run_configuration: {validation_dataset: ~/held_out.csv}}}"
    )
    config = load_config(tmp_path / "top.yml")
    assert (config.llms["student"].model, config.finetuning.output_dir) == (tmp_path / "model", tmp_path / "runs")
    assert config.eval.general.dataset.file_path == str(tmp_path / "rows.csv")
    assert config.finetuning.run_configuration.validation_dataset == str(tmp_path / "held_out.csv")
    assert exit_code(["validate", "--show", "--config_file=~/top.yml"]) == 0


def test_an_empty_file_is_an_error(tmp_path):
    """An empty file says which sections it could have; one that overrides fill loads."""
    (tmp_path / "empty.yml").write_text("# llms:\n")
    with pytest.raises(ConfigError, match="the file is empty; wanted are sections such as `llms:`"):
        load_config(tmp_path / "empty.yml")
    config = load_config(tmp_path / "empty.yml", [("finetuning.num_epochs", "2")])
    assert config.llms == {}
    assert isinstance(config.workflow, FunctionBaseConfig)
    assert parse_yaml(dump_resolved(config))["finetuning"]["enabled"] is False


def test_named_files_are_imported_before_components_are_looked_up(tmp_path):
    """A finding for an import has its index; types that it may have registered are not reported."""
    found = findings_of(
        changed(imports=["json", str(tmp_path / "agent.py"), "none.py"], workflow={"_type": "of_agent"})
    )
    assert [finding.split(": ")[0] for finding in found] == ["imports.1", "imports.2"]
    assert "does not exist" in found[0]
    [found] = findings_of(changed(workflow={"_type": "of_agent"}))
    assert "name its Python file under `imports`" in found
