"""Register the optional agent frameworks; each is imported when one of its objects is requested.

A framework's wrapper type is also the name of its extra and of its module beside this file. In that module,
`open_model` opens the framework's model on a recorded client, and `as_tool` wraps a function as the framework's tool.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.llm import LLMFrameworkEnum
from nat.errors import ConfigError
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_client, register_tool_wrapper
from nat.wire.extras import install_hint

WITHOUT_EXTRA = (LLMFrameworkEnum.OPENAI, LLMFrameworkEnum.OPENAI_SYNC)
"""The OpenAI SDK is a dependency of this project."""
FRAMEWORKS = [framework for framework in LLMFrameworkEnum if framework not in WITHOUT_EXTRA]


def _register(framework: LLMFrameworkEnum) -> None:
    @register_llm_client(config_type=OpenAIModelConfig, wrapper_type=framework)
    async def model(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
        async with _imported(framework).open_model(config, llm_name=builder.llm_name) as opened:
            yield opened

    @register_tool_wrapper(wrapper_type=framework)
    def tool(name: str, fn: Function, _builder: Builder) -> Any:
        return _imported(framework).as_tool(ToolFunction(name, fn))


def _imported(framework: LLMFrameworkEnum) -> ModuleType:
    with needs_extra(framework):
        return import_module(f"nat.plugins.frameworks.{framework}")


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Import a framework inside the block; ConfigError names the extra that installs a missing package."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            [f"wrapper_type '{extra}': the package '{error.name}' is not installed"],
            source="the environment",
            hint=install_hint(extra),
        ) from error


for each in FRAMEWORKS:
    _register(each)
