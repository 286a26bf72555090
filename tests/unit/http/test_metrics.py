"""What the metrics of a server count, whichever server it is."""

import httpx
import pytest

from fakes.metrics import scrape
from nat.http.asgi import Sender
from nat.http.metrics import PAGE_TYPE, Metered, ServerMetrics
from nat.http.outcome import outcome_of


class Scripted:
    """An application whose paths are outcomes."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self.metrics = metrics
        self.seen = 0

    async def __call__(self, scope, receive, send):
        sender, outcome = Sender(send), outcome_of(scope)
        self.seen = len(self.metrics.in_progress)
        match scope["path"]:
            case "/metrics":
                await sender.whole(200, self.metrics.page(), PAGE_TYPE)
            case "/answered":
                outcome.model, outcome.prompt_tokens, outcome.generated_tokens = "small", 7, 3
                outcome.finish_reasons = ["stop", "length"]
                await sender.json(200, {})
            case "/refused":
                await sender.json(401, {})
            case "/overloaded":
                await sender.json(529, {})
            case "/broken_off":
                outcome.model, outcome.cause, outcome.generated_tokens = "small", "the reason", 2
                await sender.json(200, {})
            case "/unanswered":
                return
            case _:
                raise ValueError("a bug")


@pytest.fixture
async def client():
    app = Scripted(ServerMetrics())
    transport = httpx.ASGITransport(Metered(app, app.metrics), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        client.app = app
        yield client


async def test_an_answer_counts_its_tokens_and_its_time(client):
    """Tokens, finish reasons and the latency of an answer stand under vLLM's names."""
    for _ in range(2):
        await client.get("/answered")
    found = await scrape(client)
    assert found["vllm:prompt_tokens_total", "small"] == 14
    assert found["vllm:generation_tokens_total", "small"] == 6
    assert found["vllm:request_success_total", "stop", "small"] == 2
    assert found["vllm:e2e_request_latency_seconds_count", "small"] == 2
    assert found["vllm:e2e_request_latency_seconds_bucket", "+Inf", "small"] == 2


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/refused", "unauthorized"),
        ("/overloaded", "other status"),
        ("/broken_off", "the reason"),
        ("/bug", "internal server error"),
    ],
)
async def test_a_failure_counts_by_its_cause(client, path, cause):
    """A status names the cause, unless the response had begun; the time of a failure is no latency of an answer."""
    await client.get(path)
    found = await scrape(client)
    assert {name: value for name, value in found.items() if name[0] == "nat_requests_failed_total"} == {
        ("nat_requests_failed_total", cause): 1
    }
    assert ("vllm:e2e_request_latency_seconds_count", "small") not in found


async def test_a_client_that_goes_is_a_cause(client):
    """A request without a response had no client any more."""

    async def send(message):
        raise AssertionError("nothing is sent")

    metered = Metered(client.app, client.app.metrics)
    await metered({"type": "http", "path": "/unanswered", "method": "GET", "headers": []}, None, send)
    assert (await scrape(client))["nat_requests_failed_total", "client disconnected"] == 1


async def test_requests_are_in_progress_until_their_end(client):
    """A request is in progress while it is handled, and however it ends it is not afterwards."""
    for path in ("/answered", "/bug", "/refused"):
        await client.get(path)
        assert client.app.seen == 1
        assert not client.app.metrics.in_progress


async def test_servers_of_one_process_count_apart(client):
    """Each server has a registry of its own, and none is the global one."""
    await client.get("/answered")
    assert b"small" in client.app.metrics.page()
    assert b"small" not in ServerMetrics().page()


async def test_other_scopes_pass(client):
    """What is no request is not counted."""
    with pytest.raises(KeyError):
        await Metered(client.app, client.app.metrics)({"type": "lifespan"}, None, None)
    assert not [name for name in await scrape(client) if name[0] == "nat_requests_failed_total"]
