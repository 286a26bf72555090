import pytest

from nat.builder.workflow_builder import WorkflowBuilder
from nat.errors import ConfigError
from nat.plugins.local.llm import LocalModelConfig


async def test_a_hub_name_is_an_error_with_the_download_command():
    """Newcomers write a name of the Hub, which works elsewhere."""
    async with WorkflowBuilder() as builder:
        with pytest.raises(ConfigError, match=r"(?s)student\.model: Qwen/Qwen3-0\.6B is not .*`hf download OWNER/NAME"):
            await builder.add_llm("student", LocalModelConfig(model="Qwen/Qwen3-0.6B"))
