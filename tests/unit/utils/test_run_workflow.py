import io

import pytest

from fakes.guide_components import GUIDE_YAML, register_guide_components
from nat.errors import ConfigError
from nat.registry.catalog import pushed_catalog
from nat.runtime.loader import PluginTypes, discover_and_register_plugins, discover_entrypoints, load_workflow
from nat.utils import run_workflow
from nat.utils.io.yaml_tools import yaml_dump, yaml_load, yaml_loads


@pytest.fixture
def config_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_API_KEY", "k")
    file = tmp_path / "config.yml"
    file.write_text(GUIDE_YAML)
    with pushed_catalog():
        register_guide_components()
        yield file


async def test_one_input_from_a_script(config_file):
    """A script passes a file and a prompt and gets the answer."""
    assert await run_workflow(config_file=config_file, prompt="hi") == "my_model: hi"
    with pytest.raises(ConfigError, match="either config or config_file"):
        await run_workflow(prompt="hi")


async def test_a_workflow_stays_open_for_a_block(config_file):
    """Several inputs use one open workflow."""
    async with load_workflow(config_file) as workflow:
        assert [await workflow.ainvoke(text) for text in "ab"] == ["my_model: a", "my_model: b"]


def test_yaml_is_read_as_by_the_loader(config_file):
    """Variables are filled in, numbers are numbers, and dumped YAML loads again."""
    tree = yaml_load(config_file)
    backend = tree["trainer_adapters"]["my_adapter"]["backend"]
    assert (backend["api_key"], backend["learning_rate"]) == ("k", 1e-5)
    text = io.StringIO()
    yaml_dump(tree, text)
    assert yaml_loads(text.getvalue()) == tree
    with pytest.raises(ConfigError, match="expected a mapping"):
        yaml_loads("- 1")


def test_discovery_has_its_upstream_name():
    """Plug-ins that call the toolkit's discovery get ours."""
    assert next(p.name for p in discover_entrypoints(PluginTypes.ALL)) == "nat_builtin"
    discover_and_register_plugins(PluginTypes.COMPONENT)
