import pytest

from nat.cli.register_workflow import (
    register_function,
    register_llm_client,
    register_llm_provider,
)
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import LLMBaseConfig
from nat.errors import RegistryError
from nat.registry.catalog import current_catalog, pushed_catalog


class ThingConfig(FunctionBaseConfig, name="thing"):
    pass


class ModelConfig(LLMBaseConfig, name="a_model"):
    pass


class FineModelConfig(ModelConfig, name="a_finer_model"):
    pass


@pytest.fixture(autouse=True)
def catalog():
    with pushed_catalog() as pushed:
        yield pushed


async def test_the_decorated_function_is_a_context_manager():
    """The code after `yield` is the teardown, for the registry and for direct callers."""
    closed = []

    @register_function(config_type=ThingConfig)
    async def thing(config, builder):
        yield config
        closed.append(True)

    async with thing(ThingConfig(), None) as built:
        assert built == ThingConfig()
        assert closed == []
    assert closed == [True]
    assert current_catalog().components[ComponentGroup.FUNCTIONS].get("thing").build_fn is thing


def test_the_same_config_twice_raises():
    """One config class has one build function."""

    async def build(config, builder):
        yield config

    register_function(config_type=ThingConfig)(build)
    with pytest.raises(RegistryError, match="already registered"):
        register_function(config_type=ThingConfig)(build)


def test_a_plain_coroutine_is_refused():
    """A missing `yield` is an error at import, not at the first run."""

    async def build(config, builder):
        return config

    with pytest.raises(RegistryError, match="not an async generator"):
        register_function(config_type=ThingConfig)(build)


def test_a_client_serves_subclasses_of_its_config():
    """A subclass of a provider's config uses the provider's client."""

    @register_llm_client(config_type=ModelConfig, wrapper_type="openai")
    async def client(config, builder):
        yield "client"

    assert current_catalog().llm_client(FineModelConfig, "openai") is client


def test_a_missing_client_lists_the_wrapper_types():
    """The error lists the available wrapper types and how to get the missing one."""

    @register_llm_provider(config_type=ModelConfig)
    async def provider(config, builder):
        yield config

    @register_llm_client(config_type=ModelConfig, wrapper_type="openai")
    async def client(config, builder):
        yield "client"

    with pytest.raises(RegistryError, match=r"(?s)openai.*register a client for 'crewai'"):
        current_catalog().llm_client(ModelConfig, "crewai")


def test_a_pushed_catalog_is_forgotten():
    """Registrations inside the block are undone after it."""
    with pushed_catalog():

        @register_function(config_type=ThingConfig)
        async def thing(config, builder):
            yield config

    with pytest.raises(RegistryError):
        current_catalog().components[ComponentGroup.FUNCTIONS].get("thing")
