"""Requests to a server of JSON."""

import httpx
import pytest

from nat.errors import BackendError
from nat.http.service import Json, ServiceClient, ServiceRefused, is_passing


def client(answers, *, token="", waits=None):
    """A client of a server that gives these answers in order; an exception is raised in its place."""
    seen, waits = [], [] if waits is None else waits

    async def handle(request):
        seen.append(request)
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def sleep(seconds):
        waits.append(seconds)

    options = {"name": "the service", "retries": 3, "sleep": sleep}
    return ServiceClient("http://service", token, transport=httpx.MockTransport(handle), **options), seen


async def test_passing_failures_are_retried():
    """No answer, 408, 429 and 5xx are tried again, after waits that double."""
    waits = []
    failures = [httpx.ConnectError("refused"), httpx.Response(503), httpx.Response(429)]
    one, seen = client([*failures, httpx.Response(200)], waits=waits)
    assert (await one.send("GET", "/x")).status_code == 200
    assert (len(seen), waits) == (4, [0.5, 1.0, 2.0])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
async def test_a_refusal_is_not_retried(status):
    """The same request would be refused again."""
    one, seen = client([httpx.Response(status, json={"detail": "no"})])
    with pytest.raises(ServiceRefused, match=f"answered GET http://service/x with {status}: no") as raised:
        await one.send("GET", "/x")
    assert (len(seen), is_passing(raised.value)) == (1, False)


async def test_an_empty_token_sends_no_header():
    """`Authorization: Bearer ` without a token is refused by clients and servers alike."""
    one, seen = client([httpx.Response(200)])
    await one.send("GET", "/x")
    other, seen_too = client([httpx.Response(200)], token="t")
    await other.send("GET", "/x")
    assert "authorization" not in seen[0].headers
    assert seen_too[0].headers["authorization"] == "Bearer t"


@pytest.mark.parametrize("text", ["<html>", "[]"])
async def test_an_answer_of_another_program_is_named(text):
    """What is no JSON object comes from something else."""
    one, _ = client([httpx.Response(200, text=text)])
    with pytest.raises(BackendError, match="the answer to GET http://service/x is not an object"):
        await one.read(Json, "GET", "/x", wanted="an object")
