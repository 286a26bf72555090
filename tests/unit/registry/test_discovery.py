import sys
import uuid

import pytest

from nat.config import parse_config
from nat.data_models.component_ref import ComponentGroup
from nat.errors import ConfigError
from nat.registry import discovery
from nat.registry.catalog import pushed_catalog
from nat.registry.discovery import discover_components, installed_entry_points
from nat.registry.imports import import_problem

PLUGIN = """
from nat.builder.builder import Builder
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig

class PluginConfig(FunctionBaseConfig, name="from_a_plugin"):
    greeting: str = "hello"

@register_function(config_type=PluginConfig)
async def plugin(config: PluginConfig, builder: Builder):
    async def greet(name: str) -> str:
        return f"{config.greeting} {name}"
    yield greet
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on sys.path, with a catalog and failures that are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(discovery.failures)
    with pushed_catalog() as catalog:
        yield tmp_path, catalog
    discovery.failures[:] = before


def install(site, source: str, *, group: str = "nat.components") -> str:
    """Write a package with its dist-info, as pip does."""
    name = f"plugin_{uuid.uuid4().hex[:8]}"
    (site / f"{name}.py").write_text(source)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}\n")
    return name


@pytest.mark.parametrize("group", ["nat.components", "nat.plugins"])
def test_an_installed_package_is_found(site, group):
    """An installed package needs only its entry point for a YAML to use its types."""
    folder, catalog = site
    name = install(folder, PLUGIN, group=group)
    discover_components()
    assert name in sys.modules
    assert catalog.components[ComponentGroup.FUNCTIONS].get("from_a_plugin").module_name == name
    assert parse_config({"workflow": {"_type": f"{name}/from_a_plugin", "greeting": "hi"}}).workflow.greeting == "hi"


def test_a_broken_plugin_affects_no_other_and_is_named(site):
    """Its error is shown at the `_type` that was not found."""
    folder, catalog = site
    broken = install(folder, "import a_module_that_is_not_there")
    install(folder, PLUGIN)
    discover_components()
    assert catalog.components[ComponentGroup.FUNCTIONS].get("from_a_plugin")
    with pytest.raises(ConfigError, match=f"'{broken}' failed to import.*a_module_that_is_not_there"):
        parse_config({"workflow": {"_type": "unknown"}})


@pytest.mark.parametrize(
    ("statement", "instead"),
    [
        ("from nat.data_models.memory import MemoryBaseConfig", "docs/from/nat.md"),
        ("from nat.cli.register_workflow import register_retriever_provider", "docs/from/nat.md"),
        ("import nat.something_new", "this project has no such name"),
    ],
)
def test_advice_for_a_missing_name(statement, instead):
    """Names of `nat` get the page of supported names."""
    with pytest.raises(ImportError) as caught:
        exec(statement, {})  # noqa: S102 - a statement from the table above
    assert instead in import_problem(caught.value)


def test_each_entry_point_is_imported_once(site):
    """Repeated discovery imports nothing again."""
    folder, catalog = site
    install(folder, PLUGIN)
    discover_components()
    count = len(catalog.components[ComponentGroup.FUNCTIONS])
    discover_components()
    assert len(catalog.components[ComponentGroup.FUNCTIONS]) == count


def test_built_in_components_use_an_entry_point():
    """The built-in entry point comes first."""
    assert installed_entry_points()[0].value == "nat.plugins.register"
