import asyncio
import socket

import pytest
from pydantic import ValidationError

from fakes.processes import free_port, refused_port
from fakes.proxy import RecordingProxy
from nat.config import parse_config
from nat.errors import BackendUnreachable, ConfigError
from nat.llm.openai_llm import OpenAIModelConfig
from nat.plugins.llms.openai import OpenAIProviderInfo, check_listening


def test_the_model_has_two_names():
    """`model_name` and `model` are one field, dumped as `model`."""
    for key in ("model_name", "model"):
        config = OpenAIModelConfig.model_validate({"_type": "openai", key: "m"})
        assert config.model_name == "m"
        assert config.model_dump(by_alias=True)["model"] == "m"


def test_the_key_is_never_shown():
    """The key is neither printed nor dumped."""
    config = OpenAIModelConfig(model_name="m", api_key="sk-secret")
    assert "sk-secret" not in repr(config) + config.model_dump_json()


def test_fields_for_requests():
    """Requests get the sampling parameters and the extra body, not connection settings or the key."""
    config = OpenAIModelConfig(model_name="m", temperature=0.5, max_tokens=9, extra_body={"min_p": 0.1, "top_p": 1})
    assert {key: value for key, value in config.request_defaults.items() if value is not None} == {
        "temperature": 0.5,
        "max_tokens": 9,
        "min_p": 0.1,
        "top_p": 1,
    }


def test_the_apis_fields_are_defaults_of_requests():
    """Each field of the block fills in what a request lacks."""
    fields = {
        "max_completion_tokens": 9,
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "logit_bias": {"50256": -100},
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "verbosity": "low",
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "store": False,
        "metadata": {"team": "a"},
        "user": "u-1",
    }
    config = OpenAIModelConfig.model_validate({"_type": "openai", "model": "m", **fields})
    assert fields.items() <= config.request_defaults.items()


def test_two_names_of_one_limit_exclude_each_other():
    """Two limits of one answer could differ."""
    with pytest.raises(ValidationError, match="set one of them"):
        OpenAIModelConfig(model_name="m", max_tokens=5, max_completion_tokens=6)


def test_an_unknown_key_suggests_extra_body():
    """The error says where fields of a particular server belong."""
    tree = {"llms": {"m": {"_type": "openai", "model": "m", "top_k": 5}}}
    with pytest.raises(ConfigError, match=r"llms\.m\.top_k: unknown key.*only this server knows under extra_body"):
        parse_config(tree)


OPTION = "llms.student.base_url"


async def test_a_refused_connection_is_an_error():
    """The error names option and address without the rest of the URL."""
    with refused_port() as port, pytest.raises(BackendUnreachable) as error:
        await check_listening(f"http://me:secret@127.0.0.1:{port}/v1?key=secret", option=OPTION)
    assert f"{OPTION}: no server answers at http://127.0.0.1:{port}: " in str(error.value)
    assert "secret" not in str(error.value)


async def test_a_restarting_server_is_waited_for():
    """A server that refuses connections for a moment is tried again."""
    port, asked = free_port(), asyncio.Event()

    async def listens(_reader, writer):
        asked.set()
        writer.close()

    checked = asyncio.create_task(check_listening(f"http://127.0.0.1:{port}", option=OPTION))
    await asyncio.sleep(0.1)
    assert not checked.done()
    async with await asyncio.start_server(listens, "127.0.0.1", port):
        await checked
        assert await asyncio.wait_for(asked.wait(), 10)


async def test_a_slow_server_passes_the_check():
    """A server that accepts the connection is alive; slow requests end at the rollout's deadline."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        await check_listening(f"http://127.0.0.1:{listener.getsockname()[1]}", option=OPTION)
        connection, address = listener.accept()
        connection.close()
    assert address[0] == "127.0.0.1"


async def test_behind_a_proxy_nothing_is_checked(monkeypatch):
    """The proxy may resolve names that this machine cannot."""
    provider = OpenAIProviderInfo(
        config=OpenAIModelConfig(model_name="m", base_url="http://nobody.invalid/v1"), description=""
    )
    async with RecordingProxy(monkeypatch):
        await provider.probe("student")
    with pytest.raises(BackendUnreachable):
        await provider.probe("student")
