"""`nat gateway serve`: the gateway's key opens, reads and closes rollouts."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from openai import AsyncOpenAI
from pydantic import SecretStr

from fakes.openai_replies import message_ids
from fakes.openai_server import OpenAIServer
from nat.capture.interning import Interner
from nat.config.load import load_config
from nat.data_models.intermediate_step import IntermediateStepType
from nat.errors import ConfigError
from nat.gateway.options import GatewayOptions
from nat.gateway.serve import running_gateway
from nat.rollout.step_lines import decoded
from nat.wire.rollout import STEP

ASK = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
KEY = "admin-key"


@asynccontextmanager
async def gateway(tmp_path, script=None, **options) -> AsyncIterator[tuple[OpenAIServer, httpx.AsyncClient]]:
    """A scripted server, a gateway in front of it, and a client with the gateway's own key."""
    async with OpenAIServer(script) as server:
        llm = {"_type": "openai", "base_url": server.base_url, "api_key": "upstream", "max_retries": 0}
        llms = {"student": {**llm, "model_name": "tiny"}, "judge": {**llm, "model_name": "large"}}
        file = tmp_path / "config.yml"
        file.write_text(json.dumps({"llms": llms}))
        given = GatewayOptions(port=0, api_key=SecretStr(KEY), **options)
        async with (
            running_gateway(load_config(file), given) as (url, key),
            httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}) as admin,
        ):
            yield server, admin


async def opened(admin: httpx.AsyncClient, **wanted) -> dict[str, str]:
    answer = await admin.post("/rollouts", json=wanted)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def ask(rollout: dict[str, str], model: str = "gpt-4o") -> str:
    async with AsyncOpenAI(base_url=rollout["base_url"], api_key=rollout["key"], max_retries=0) as client:
        answer = await client.chat.completions.create(**{**ASK, "model": model})
    return answer.choices[0].message.content


def steps_of(lines: bytes) -> list:
    return decoded([line.removeprefix(STEP) for line in lines.split(b"\n\n") if line], Interner())


async def test_a_rollout_from_opening_to_end(tmp_path):
    """Steps can be read while the rollout is open; closing returns them and revokes the key."""
    async with gateway(tmp_path) as (server, admin):
        rollout = await opened(admin, id="task-1", seed=5)
        assert await ask(rollout) == "ok"
        assert (await admin.get("/rollouts")).json() == {"rollouts": ["task-1"]}
        read = (await admin.get("/rollouts/task-1")).content
        last = (await admin.delete("/rollouts/task-1")).content
        assert read == last
        with pytest.raises(Exception, match="its rollout is over"):
            await ask(rollout)
        assert (await admin.get("/rollouts/task-1")).status_code == 404
    start, end = steps_of(last)
    assert start.event_type is IntermediateStepType.LLM_START
    assert end.metadata.llm_call.token_ids == message_ids({"content": "ok"})
    assert server.bodies[0]["seed"] > 0


async def test_the_same_seed_samples_the_same(tmp_path):
    """A rollout's seed determines those of its calls; without it they have none."""
    async with gateway(tmp_path) as (server, admin):
        for wanted in ({"seed": 5}, {"seed": 5}, {"seed": 6}, {}):
            await ask(await opened(admin, **wanted))
    first, again, other, none = [body.get("seed") for body in server.bodies]
    assert first == again != other
    assert none is None


@pytest.mark.parametrize(("options", "served"), [({}, "tiny"), ({"llm": "judge"}, "large")])
async def test_the_model_is_the_yamls(tmp_path, options, served):
    """A model name that is a key of `llms` selects that LLM; any other selects `--llm`, or the first."""
    async with gateway(tmp_path, **options) as (server, admin):
        rollout = await opened(admin)
        for model in ("gpt-4o", "judge", "student"):
            await ask(rollout, model)
    assert [body["model"] for body in server.bodies] == [served, "large", "tiny"]


async def test_an_agents_key_opens_no_rollouts(tmp_path):
    """Opening, reading and closing rollouts need the gateway's key, which gives no access to models."""
    async with gateway(tmp_path) as (server, admin):
        rollout = await opened(admin, id="mine")
        agent = {"authorization": f"Bearer {rollout['key']}"}
        for method, path in (("POST", "/rollouts"), ("GET", "/rollouts"), ("GET", "/rollouts/mine")):
            assert (await admin.request(method, path, headers=agent)).status_code == 401
            assert (await admin.request(method, path, headers={"authorization": ""})).status_code == 401
        assert (await admin.delete("/rollouts/mine", headers=agent)).status_code == 401
        assert (await admin.post("/v1/chat/completions", json=ASK)).status_code == 401
    assert server.requests == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"id": "a/b"}, "id"),
        ({"id": ""}, "id"),
        ({"reward": 1}, "reward"),
        ({"seed": "x"}, "seed"),
        ([], "should be an object"),
    ],
)
async def test_an_invalid_body_is_refused(tmp_path, body, told):
    """The status is 400, and the error names the field."""
    async with gateway(tmp_path) as (_, admin):
        answer = await admin.post("/rollouts", json=body)
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]


async def test_ids_are_unique_while_they_are_open(tmp_path):
    """Two rollouts with one id could not be distinguished."""
    async with gateway(tmp_path) as (_, admin):
        await opened(admin, id="a")
        assert (await admin.post("/rollouts", json={"id": "a"})).status_code == 409
        await admin.delete("/rollouts/a")
        await opened(admin, id="a")
        assert (await admin.delete("/rollouts")).status_code == 405


@pytest.mark.parametrize(("llms", "options", "told"), [({}, {}, "has no LLM"), (None, {"llm": "studnt"}, "student")])
async def test_a_missing_llm_is_an_error(tmp_path, llms, options, told):
    """Without an LLM, or with an unknown `--llm`, the command fails before it listens."""
    file = tmp_path / "config.yml"
    some = {"student": {"_type": "openai", "model_name": "m", "base_url": "http://127.0.0.1:9/v1"}}
    file.write_text(json.dumps({"llms": some if llms is None else llms}))
    with pytest.raises(ConfigError, match=told):
        async with running_gateway(load_config(file), GatewayOptions(port=0, **options)):
            pass
