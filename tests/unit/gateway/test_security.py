"""A key gives access to the model inside its own rollout, and to nothing else."""

import asyncio
import json

import httpx
import pytest

from fakes.gateway import gateway
from fakes.http_server import HttpServer, SeenRequest, write_json
from fakes.openai_replies import Refuse, Say

ASK = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def post(url: str, headers: dict[str, str], path: str = CHAT, **options) -> httpx.Response:
    async with httpx.AsyncClient(base_url=url) as client:
        return await client.post(path, headers=headers, **({"json": ASK} | options))


@pytest.mark.parametrize(
    "headers", [{"authorization": "Bearer {}"}, {"x-api-key": "{}"}, {"authorization": "bearer {}"}]
)
async def test_a_key_comes_as_either_sdk_sends_it(headers):
    """The key may be a bearer token or an `x-api-key`."""
    async with gateway() as gate, gate.rollout() as rollout:
        sent = {name: value.format(rollout.key) for name, value in headers.items()}
        assert (await post(gate.url, sent)).status_code == 200


async def test_a_service_sends_a_rollouts_key_beside_its_own():
    """The toolkit's header decides before the service's own key, whatever that is; with a wrong key nothing opens."""
    async with gateway() as gate, gate.rollout() as mine, gate.rollout() as theirs:
        field = "x-payload-nat-rollout-key"
        assert (await post(gate.url, {**bearer("own"), field: mine.key})).status_code == 200
        assert (await post(gate.url, {**bearer(theirs.key), field: mine.key})).status_code == 200
        assert (await post(gate.url, {**bearer(theirs.key), field: mine.key[:-1]})).status_code == 401
        assert (await post(gate.url, {**bearer("own"), field: ""})).status_code == 401
    assert (len(mine.calls), len(theirs.calls)) == (2, 0)


async def test_nothing_opens_without_the_whole_key():
    """A missing, partial, longer or differently sent key gets a 401 in the API's shape; nothing is sent upstream."""
    async with gateway() as gate, gate.rollout() as rollout:
        key = rollout.key
        wrong = [{}, bearer(key[:-1]), bearer(key + "x"), bearer(key.swapcase()), bearer(f"{key} {key}")]
        wrong += [{"authorization": f"Basic {key}"}, {"authorization": key}, {"cookie": f"key={key}"}]
        for path in (CHAT, "/v1/completions", "/v1/models", "/nothing", "/"):
            for headers in wrong:
                answer = await post(gate.url, headers, path)
                assert answer.status_code == 401
                assert answer.json()["error"]["type"] == "authentication_error"
            assert (await post(gate.url, {}, f"{path}?key={key}&api_key={key}")).status_code == 401
    assert gate.server.requests == []


async def test_a_key_ends_with_its_rollout():
    """After the rollout the key is refused, and the error gives the reason."""
    async with gateway() as gate:
        async with gate.rollout() as rollout:
            assert (await post(gate.url, bearer(rollout.key))).status_code == 200
        answer = await post(gate.url, bearer(rollout.key))
    assert answer.status_code == 401
    assert "its rollout is over" in answer.json()["error"]["message"]
    assert len(gate.server.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_running_call_ends_with_its_rollout(stream):
    """The agent gets an error, the upstream request is cancelled, and no step follows the end."""
    asked = asyncio.Event()

    async def never(_: SeenRequest) -> Say:
        asked.set()
        await asyncio.sleep(60)
        return Say()

    async with gateway(never) as gate:
        async with gate.rollout() as rollout:
            call = asyncio.create_task(post(gate.url, bearer(rollout.key), json={**ASK, "stream": stream}))
            await asked.wait()
        answer = await asyncio.wait_for(call, 5)
    assert answer.status_code == 401
    assert rollout.calls == []


async def test_a_key_opens_the_model_and_nothing_else():
    """No route leads to rewards, files or other rollouts."""
    paths = ["/rollouts", "/rollouts/1", "/rewards", "/v1/files", "/v1/rollouts", "/v1/fine_tuning/jobs", "/metrics"]
    paths += ["/v1/chat/completions/../../../rollouts", f"/{CHAT}", "/docs", "/openapi.json", "/"]
    async with gateway() as gate, gate.rollout() as rollout, httpx.AsyncClient(base_url=gate.url) as client:
        for path in paths:
            for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
                assert (await client.request(method, path, headers=bearer(rollout.key))).status_code == 404
    assert gate.server.requests == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'"text"', b"null"])
async def test_an_invalid_body_is_not_forwarded(content):
    """A body that is no JSON object is refused here."""
    async with gateway() as gate, gate.rollout() as rollout:
        answer = await post(gate.url, bearer(rollout.key), json=None, content=content)
    assert answer.status_code == 400
    assert gate.server.requests == []


class Elsewhere(HttpServer):
    """A server that no request should reach."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[SeenRequest] = []

    async def answer(self, request, reader, writer) -> bool:
        self.seen.append(request)
        write_json(writer, 200, {})
        return True


async def test_a_request_cannot_choose_its_upstream():
    """Hosts and URLs in request line, headers or fields have no effect; the configuration names the upstream."""
    async with Elsewhere() as evil, gateway(lambda _: Say()) as gate, gate.rollout() as rollout:
        url, upstream = evil.base_url, f"127.0.0.1:{gate.server.port}"
        fields = {"base_url": url, "api_base": url, "model": f"{url}/v1", "url": url}
        headers = {"host": url.removeprefix("http://"), "x-forwarded-host": url, "x-base-url": url}
        answer = await post(gate.url, bearer(rollout.key) | headers, json={**ASK, **fields})
        assert answer.status_code == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", int(gate.url.rpartition(":")[2]))
        body = json.dumps(ASK)
        head = f"POST {url}{CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {rollout.key}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        assert b" 200 " in await reader.readline()
        writer.close()
        assert evil.seen == []
    assert len(gate.server.requests) == 2
    assert {seen.headers["host"] for seen in gate.server.requests} == {upstream}


async def test_a_refusal_of_our_key_is_hidden():
    """An agent learns nothing of the upstream's key and does not mistake the error for its own."""
    async with gateway([Refuse(401, "Incorrect API key: upst***key")]) as gate, gate.rollout() as rollout:
        answer = await post(gate.url, bearer(rollout.key))
    assert answer.status_code == 502
    assert "upst" not in answer.text


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages"])
async def test_a_models_name_is_a_text(path):
    """Anything else is refused, and nothing is sent upstream."""
    body = {"messages": ASK["messages"], "input": "hi", "max_tokens": 5, "stream": True}
    async with gateway() as gate, gate.rollout() as rollout:
        for name in (["m"], 5):
            answer = await post(gate.url, bearer(rollout.key), path, json=body | {"model": name})
            assert (answer.status_code, len(answer.content) < 1000) == (400, True)
            assert "model: wanted a name" in answer.text
    assert gate.server.requests == []
