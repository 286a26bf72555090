"""Keys, origins and sizes decide whether the server admits a request."""

import asyncio

import pytest
from pydantic import ValidationError

from fakes.metrics import scrape
from fakes.scripted_workflow import ScriptedWorkflow
from fakes.served_workflow import serving, url_of
from nat.front_end.options import FrontEndOptions


async def shout(question):
    return f"{question}!"


@pytest.mark.parametrize(
    ("authorization", "status"),
    [("Bearer secret", 200), ("bearer secret", 200), ("Bearer Secret", 401), ("secret", 401), ("", 401)],
)
async def test_every_route_needs_the_key(tmp_path, authorization, status):
    """Health check and API reference need the key, too."""
    async with serving(ScriptedWorkflow(tmp_path, shout, []), api_key="secret") as client:
        headers = {"Authorization": authorization} if authorization else {}
        for answer in (
            await client.get("/health", headers=headers),
            await client.get("/openapi.json", headers=headers),
            await client.get("/metrics", headers=headers),
            await client.post("/generate", json="x", headers=headers),
        ):
            assert answer.status_code == status
            assert status == 200 or "NAT_SERVE_API_KEY" in answer.json()["error"]["message"]


async def test_the_objects_of_a_body_are_limited(tmp_path):
    """Each object needs memory and parsing time, so a body may have only so many."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client:
        assert (await client.post("/generate", json=[{}] * 100_001)).status_code == 413


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1"])
async def test_without_a_key_foreign_pages_are_refused(tmp_path, origin):
    """A foreign page could otherwise call the agent on this machine; the server's own API page may."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client:
        assert (await client.post("/generate", json="x", headers={"Origin": origin})).status_code == 403
        assert (await client.post("/generate", json="x", headers={"Origin": url_of(client)})).status_code == 200


async def test_a_name_that_leads_here_is_not_this_machine(tmp_path):
    """A site may resolve its name to loopback, so that host and origin agree; the request is still refused."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client:
        headers = {"Origin": "http://evil.example:8000", "Host": "evil.example:8000"}
        assert (await client.post("/generate", json="x", headers=headers)).status_code == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_a_public_host_needs_a_key(host):
    """Otherwise anyone who reaches the port could spend the owner's tokens."""
    with pytest.raises(ValidationError, match="NAT_SERVE_API_KEY"):
        FrontEndOptions(host=host)
    assert FrontEndOptions.model_validate({"host": host, "api_key": "k"}).host == host


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_loopback_needs_no_key(host):
    """Other machines cannot connect to loopback."""
    assert FrontEndOptions(host=host).api_key is None


async def test_answers_are_counted_under_the_workflows_name(tmp_path):
    """Each kind of request counts as one answer, and the metrics are no part of the API page."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client:
        for path in ("/generate", "/generate/stream", "/generate/full"):
            assert (await client.post(path, json="x")).status_code == 200
        messages = [{"role": "user", "content": "x"}]
        for path, more in (("/chat", {}), ("/chat/stream", {}), ("/v1/chat/completions", {"stream": True})):
            assert (await client.post(path, json={"messages": messages, **more})).status_code == 200
        found = await scrape(client)
        assert "/metrics" not in (await client.get("/openapi.json")).json()["paths"]
    assert found["vllm:e2e_request_latency_seconds_count", "test"] == 6
    assert found["vllm:num_requests_running", "test"] == 0


@pytest.mark.parametrize("path", ["/generate", "/generate/stream", "/generate/full", "/chat", "/chat/stream"])
async def test_a_workflow_that_fails_is_counted(tmp_path, path):
    """An error is counted by its cause, also where the response had begun with status 200."""

    async def fail(question):
        raise RuntimeError("broken")

    body = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else "x"
    async with serving(ScriptedWorkflow(tmp_path, fail, [])) as client:
        await client.post(path, json=body)
        found = await scrape(client)
    assert found["nat_requests_failed_total", "the workflow raised an error"] == 1
    assert ("vllm:e2e_request_latency_seconds_count", "test") not in found


async def test_requests_beyond_the_limit_wait(tmp_path):
    """With one place, the second request waits while the first runs."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hold(question):
        begun.set()
        await go_on.wait()
        return question

    scripted = ScriptedWorkflow(tmp_path, hold, [])
    scripted.general["max_concurrency"] = 1
    async with serving(scripted) as client, asyncio.TaskGroup() as group:
        for question in "ab":
            group.create_task(client.post("/generate", json=question))
        await begun.wait()
        while (found := await scrape(client))["vllm:num_requests_waiting", "test"] != 1:
            pass
        assert found["vllm:num_requests_running", "test"] == 1
        go_on.set()
