import pytest

from fakes.openai_server import OpenAIServer
from nat.builder.workflow_builder import WorkflowBuilder
from nat.config import parse_config
from nat.errors import ConfigError
from nat.llm.nim_llm import NIMModelConfig
from nat.plugins.frameworks.register import FRAMEWORKS
from nat.registry.catalog import current_catalog


def block(**fields):
    return {"llms": {"judge": {"_type": "nim", "model_name": "meta/llama", **fields}}}


async def asked(config):
    async with WorkflowBuilder.from_config(parse_config(config)) as builder:
        client = await builder.get_llm("judge", wrapper_type="openai")
        messages = [{"role": "user", "content": "hello"}]
        await client.chat.completions.create(model=client.model_name, messages=messages)


async def test_a_request_has_the_defaults_and_the_key_of_the_host(monkeypatch):
    """NVIDIA_BASE_URL and NVIDIA_API_KEY are read, and an answer has at most 300 tokens; OpenAI's are not used."""
    async with OpenAIServer(api_key="nvapi-1") as server:
        monkeypatch.setenv("NVIDIA_BASE_URL", server.base_url)
        monkeypatch.setenv("NVIDIA_API_KEY", "nvapi-1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
        await asked(block(temperature=0.5))
    assert [(b["model"], b["max_tokens"], b["temperature"]) for b in server.bodies] == [("meta/llama", 300, 0.5)]


async def test_the_api_needs_a_key(monkeypatch):
    """Without a URL and a key, the error names the variable of this host."""
    for name in ("NVIDIA_API_KEY", "NVIDIA_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        ConfigError, match=r"llms\.judge\.api_key: NVIDIA's API requires a key(.|\n)*set NVIDIA_API_KEY"
    ):
        await asked(block())


def test_the_newer_name_of_the_limit_replaces_the_default():
    """`max_completion_tokens` alone is sent alone; both names at once are refused."""
    config = NIMModelConfig(model_name="m", max_completion_tokens=9)
    assert (config.max_tokens, config.request_defaults["max_completion_tokens"]) == (None, 9)
    with pytest.raises(ValueError, match="two names of one limit"):
        NIMModelConfig(model_name="m", max_completion_tokens=9, max_tokens=9)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_has_a_client(framework):
    """The clients of `openai` serve `nim` too."""
    assert current_catalog().llm_client(NIMModelConfig, framework) is not None
