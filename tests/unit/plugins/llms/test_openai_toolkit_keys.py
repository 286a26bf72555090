"""Keys of the toolkit's LLMs, each with its effect on the wire."""

import pytest
from openai import APIConnectionError

from fakes.http_server import self_signed
from fakes.openai_replies import Say
from fakes.openai_server import OpenAIServer
from nat.capture.context import waited_for
from nat.errors import ConfigError
from nat.http.errors import ApiError
from nat.plugins.llms.client import open_client, open_upstream
from nat.plugins.llms.nim import NIMModelConfig
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.local.teacher import Teacher

HI = [{"role": "user", "content": "hi"}]
RULES = {"role": "system", "content": "Be short."}


class TlsServer(OpenAIServer):
    tls = self_signed()


def config_for(server, **fields):
    return OpenAIModelConfig(model_name="m", base_url=server.base_url, api_key="k", max_retries=0, **fields)


async def test_a_self_signed_certificate_is_refused():
    """Every client checks certificates unless told otherwise; none waits for a better one, and no request arrives."""
    async with TlsServer() as server:
        config = config_for(server)
        async with open_client(config, llm_name="a") as client:
            with pytest.raises(APIConnectionError), waited_for(20, pytest.fail):
                await client.chat.completions.create(model="m", messages=HI)
        async with open_upstream(config, llm_name="a") as upstream:
            with pytest.raises(ApiError, match="does not answer"):
                await upstream.complete("/chat/completions", {"messages": HI})
        async with Teacher(config, llm_name="a") as teacher:
            with pytest.raises(APIConnectionError):
                await teacher._client.models.list()
        assert server.requests == []


async def test_verify_ssl_false_accepts_any_certificate():
    """Clients, the gateway's upstream and a teacher reach a server with a self-signed certificate."""
    async with TlsServer(lambda _: Say("yes")) as server:
        config = config_for(server, verify_ssl=False)
        async with open_client(config, llm_name="a") as client:
            answer = await client.chat.completions.create(model="m", messages=HI)
        assert answer.choices[0].message.content == "yes"
        async with open_upstream(config, llm_name="a") as upstream:
            assert (await upstream.complete("/chat/completions", {"messages": HI}))["object"] == "chat.completion"
        async with Teacher(config, llm_name="a") as teacher:
            assert [model.id async for model in await teacher._client.models.list()] == ["fake"]


async def sent(model: str, thinking: bool | None, messages, **fields):
    """The request of one chat on the wire."""
    async with OpenAIServer() as server:
        config = NIMModelConfig(model_name=model, base_url=server.base_url, thinking=thinking)
        async with open_client(config, llm_name="a") as client:
            await client.chat.completions.create(model=model, messages=messages, extra_body=fields)
        return server.bodies[0]


@pytest.mark.parametrize(
    ("model", "thinking", "text"),
    [
        ("nvidia/llama-3.1-nemotron-nano-8b-v1", True, "detailed thinking on"),
        ("nvidia/llama-3.3-nemotron-super-49b-v1", False, "detailed thinking off"),
        ("nvidia/Llama-3_1-Nemotron-Ultra-253B-v1", False, "detailed thinking off"),
        ("nvidia/llama-3.3-nemotron-super-49b-v1.5", True, "/think"),
        ("nvidia/llama-3.3-nemotron-super-49b-v1_1", True, "detailed thinking on"),
        ("nvidia/nvidia-nemotron-nano-9b-v2", True, "/think"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", False, "/no_think"),
    ],
)
async def test_nemotron_is_told_in_the_system_message(model, thinking, text):
    """Each generation has words of its own; they follow the agent's rules, once."""
    body = await sent(model, thinking, [RULES, *HI])
    assert body["messages"] == [{"role": "system", "content": f"Be short.\n{text}"}, *HI]
    assert "chat_template_kwargs" not in body
    assert (await sent(model, thinking, HI))["messages"] == [{"role": "system", "content": text}, *HI]
    told = [{"role": "developer", "content": [{"type": "text", "text": text}]}, *HI]
    assert (await sent(model, thinking, told))["messages"] == told


@pytest.mark.parametrize("thinking", [True, False])
async def test_other_models_are_told_by_their_template(thinking):
    """The chat template's variable has one of two names; an agent's own variables win."""
    body = await sent("qwen/qwen3-8b", thinking, [RULES, *HI])
    assert body["messages"] == [RULES, *HI]
    assert body["chat_template_kwargs"] == {"enable_thinking": thinking, "thinking": thinking}
    own = await sent("qwen/qwen3-8b", thinking, HI, chat_template_kwargs={"tools_first": True})
    assert own["chat_template_kwargs"] == {"tools_first": True}


@pytest.mark.parametrize("model", ["nvidia/nvidia-nemotron-nano-9b-v2", "qwen/qwen3-8b"])
async def test_by_default_the_server_decides(model):
    """Without `thinking` the request stays as it is."""
    body = await sent(model, None, [RULES, *HI])
    assert body["messages"] == [RULES, *HI]
    assert "chat_template_kwargs" not in body


def test_openai_itself_has_no_such_switch(monkeypatch):
    """OpenAI refuses unknown fields, so the error names the key and what to set instead."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    config = OpenAIModelConfig(model_name="gpt-5", api_key="k", thinking=True)
    with pytest.raises(ConfigError, match=r"llms\.agent\.thinking: OpenAI has no such switch\n.*reasoning_effort"):
        open_client(config, llm_name="agent")
