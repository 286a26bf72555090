import pytest
from pydantic import Field

from nat.config import parse_config
from nat.data_models.component_ref import FunctionRef, LLMRef, RetrieverRef
from nat.data_models.function import FunctionBaseConfig
from nat.errors import ConfigError
from nat.registry.catalog import pushed_catalog
from nat.registry.decorators import register_function


class NodeConfig(FunctionBaseConfig, name="node"):
    calls: list[FunctionRef] = Field(default_factory=list)
    models: dict[str, LLMRef] = Field(default_factory=dict)
    retriever: RetrieverRef | None = None


@pytest.fixture(autouse=True)
def node():
    with pushed_catalog():

        @register_function(config_type=NodeConfig)
        async def build(config, builder):
            yield config

        yield


def functions(**calls):
    return {"functions": {name: {"_type": "node", "calls": targets} for name, targets in calls.items()}}


def test_references_in_lists_and_mappings_are_checked():
    """References anywhere in a config are checked and named by their full path."""
    tree = functions(a=["b", "nowhere"], b=[])
    tree["functions"]["b"]["models"] = {"judge": "missing"}
    with pytest.raises(ConfigError) as caught:
        parse_config(tree)
    assert [f.split(":")[0] for f in caught.value.findings] == ["functions.a.calls.1", "functions.b.models.judge"]


def test_a_reference_to_a_broken_component_is_no_second_error():
    """One mistake gives one error, not another one for the reference."""
    tree = functions(a=["b"])
    tree["functions"]["b"] = {"_type": "node", "cals": []}
    with pytest.raises(ConfigError) as caught:
        parse_config(tree)
    assert len(caught.value.findings) == 1


def test_a_reference_to_an_unsupported_component_is_an_error():
    """A plug-in may declare a reference of the wider toolkit; a YAML that uses it gets an error at its place."""
    tree = {"functions": {"a": {"_type": "node", "retriever": "wiki"}}}
    with pytest.raises(ConfigError, match=r"functions\.a\.retriever: 'wiki' names a component .* leave the key out"):
        parse_config(tree)
    assert parse_config({"functions": {"a": {"_type": "node"}}}).functions["a"].retriever is None
