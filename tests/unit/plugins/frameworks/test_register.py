import sys

import pytest

from nat.builder.function_info import FunctionInfo
from nat.builder.workflow_builder import WorkflowBuilder
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig
from nat.errors import ConfigError
from nat.llm.openai_llm import OpenAIModelConfig
from nat.plugins.frameworks.register import FRAMEWORKS, needs_extra
from nat.registry.catalog import pushed_catalog
from nat.wire.extras import install_hint


class NothingConfig(FunctionBaseConfig, name="nothing"):
    pass


@pytest.fixture
async def builder():
    with pushed_catalog():

        @register_function(config_type=NothingConfig)
        async def build(config, builder):
            async def nothing(word: str) -> str:
                return word

            yield FunctionInfo.from_fn(nothing)

        async with WorkflowBuilder() as builder:
            await builder.add_llm("student", OpenAIModelConfig(model_name="m", base_url="http://127.0.0.1:9/v1"))
            await builder.add_function("nothing", NothingConfig())
            yield builder


class NoPackages:
    """An import finder that hides all other packages, as if they were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith("nat"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def no_frameworks(monkeypatch):
    for name in [name for name in sys.modules if name in {f"nat.plugins.frameworks.{each}" for each in FRAMEWORKS}]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoPackages(), *sys.meta_path])


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_framework_that_is_not_installed_names_its_extra(framework, builder, no_frameworks):
    """Client and tools name the extra to install, which has the wrapper type's name."""
    wanted = install_hint(framework)
    assert f"[{framework}]" in wanted
    with pytest.raises(ConfigError) as raised:
        await builder.get_llm("student", wrapper_type=framework)
    assert raised.value.hint == wanted
    with pytest.raises(ConfigError) as raised:
        await builder.get_tool("nothing", wrapper_type=framework)
    assert raised.value.hint == wanted


def test_a_framework_that_fails_to_import_is_its_own_error():
    """Another error during the import is not reported as a missing package."""
    with pytest.raises(ImportError, match="it is of another time"), needs_extra("some_framework"):
        raise ImportError("it is of another time")
