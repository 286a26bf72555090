"""Requests to a service."""

import httpx
import pytest

from nat.errors import BackendError, BackendUnreachable
from nat.plugins.customizer.dpo.connection import ServiceConnection, ServiceRefused, is_passing


def connection(answers, *, token="", waits=None):
    """A connection to a server that gives these answers in order; an exception is raised in its place."""
    seen, waits = [], [] if waits is None else waits

    async def handle(request):
        seen.append(request)
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def sleep(seconds):
        waits.append(seconds)

    options = {"service": "the service", "key_field": "api_key", "sleep": sleep}
    return ServiceConnection("http://service", token, transport=httpx.MockTransport(handle), **options), seen


async def test_passing_failures_are_retried():
    """No answer, 408, 429 and 5xx are tried again, after waits that double."""
    waits = []
    failures = [httpx.ConnectError("refused"), httpx.Response(503), httpx.Response(429)]
    one, seen = connection([*failures, httpx.Response(200)], waits=waits)
    assert (await one.send("GET", "/x")).status_code == 200
    assert (len(seen), waits) == (4, [0.5, 1.0, 2.0])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
async def test_a_refusal_is_not_retried(status):
    """The same request would be refused again."""
    one, seen = connection([httpx.Response(status, json={"detail": "no"})])
    with pytest.raises(ServiceRefused, match=f"answered GET http://service/x with {status}: no") as raised:
        await one.send("GET", "/x")
    assert (len(seen), is_passing(raised.value)) == (1, False)


async def test_an_empty_token_sends_no_header():
    """`Authorization: Bearer ` without a token is refused by clients and servers alike."""
    one, seen = connection([httpx.Response(200)])
    await one.send("GET", "/x")
    other, seen_too = connection([httpx.Response(200)], token="t")
    await other.send("GET", "/x")
    assert "authorization" not in seen[0].headers
    assert seen_too[0].headers["authorization"] == "Bearer t"


async def test_a_wrong_token_names_the_field():
    """The hint says which field holds the token."""
    one, _ = connection([httpx.Response(401)])
    with pytest.raises(ServiceRefused) as raised:
        await one.send("GET", "/x")
    assert raised.value.hint == "set `api_key` of the trainer adapter to a token that this service accepts"


async def test_a_refused_connection_is_named():
    """The error has the address and what to check."""
    one, _ = connection([httpx.ConnectError("refused")])
    with pytest.raises(BackendUnreachable, match="the service does not answer: GET http://service/x"):
        await one.send("GET", "/x", retries=0)


@pytest.mark.parametrize("text", ["<html>", "[]"])
async def test_an_answer_of_another_program_is_named(text):
    """What is no JSON object comes from something else."""
    one, _ = connection([httpx.Response(200, text=text)])
    with pytest.raises(BackendError, match="with no JSON object"):
        await one.json("GET", "/x")


async def test_lists_are_read_to_the_end():
    """All pages of a list are read; a list without pages is one page."""
    pages = [{"data": [{"n": n}], "pagination": {"page": n, "total_pages": 3}} for n in (1, 2, 3)]
    one, seen = connection([httpx.Response(200, json=page) for page in pages])
    assert [each["n"] async for each in one.listed("/x")] == [1, 2, 3]
    assert [request.url.params["page"] for request in seen] == ["1", "2", "3"]
    other, _ = connection([httpx.Response(200, json={"data": [{"n": 1}]})])
    assert [each["n"] async for each in other.listed("/x")] == [1]
