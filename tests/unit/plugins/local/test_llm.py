import pytest

from nat.builder.workflow_builder import WorkflowBuilder
from nat.errors import ConfigError
from nat.plugins.local.llm import LocalModelConfig


async def test_a_name_on_the_hub_is_told_how_to_become_a_directory():
    """It is what a newcomer writes first, since elsewhere a name is enough."""
    async with WorkflowBuilder() as builder:
        with pytest.raises(ConfigError, match=r"(?s)student\.model: Qwen/Qwen3-0\.6B is not .*`hf download OWNER/NAME"):
            await builder.add_llm("student", LocalModelConfig(model="Qwen/Qwen3-0.6B"))
