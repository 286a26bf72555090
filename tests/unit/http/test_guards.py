"""The host names that a server accepts."""

import httpx
import pytest
from starlette.responses import PlainTextResponse

from nat.http.guards import Guard, HostCheck, HostNames

LOOPBACK = ["localhost", "localhost:8000", "LOCALHOST.:80", "127.0.0.1", "127.0.0.1:8000", "[::1]:8000", "127.1.2.3"]
REBOUND = ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"]
REBOUND += ["localhost:80@evil.example", "localhost:evil.example", "127.0.0.1:80:evil.example", "[::1]:80@evil.example"]


@pytest.mark.parametrize("bound", ["localhost", "127.0.0.1", "::1"])
def test_a_loopback_server_accepts_loopback_names(bound):
    """A foreign page that resolves its own name to this machine sends that name."""
    names = HostNames(bound)
    assert all(map(names.match, LOOPBACK))
    assert not any(map(names.match, REBOUND))


@pytest.mark.parametrize("bound", ["0.0.0.0", "::", "10.0.0.1", "box.example"])
def test_a_public_server_accepts_any_name(bound):
    """Containers and other machines use their own names for it; its key refuses foreign pages."""
    assert all(map(HostNames(bound).match, [*LOOPBACK, *REBOUND, "host.docker.internal:8000"]))


def test_allowed_hosts_are_the_only_other_names():
    """The option adds names of a proxy to loopback, and restricts those of a public server."""
    for bound in ("127.0.0.1", "10.0.0.1"):
        names = HostNames(bound, ["agent.example"])
        assert all(map(names.match, [*LOOPBACK, "agent.example", "Agent.Example:443", bound]))
        assert not names.match("evil.example")


async def ask(*hosts):
    async def app(scope, receive, send):
        await PlainTextResponse("in")(scope, receive, send)

    transport = httpx.ASGITransport(Guard(app, HostCheck(HostNames("127.0.0.1"))))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.send(httpx.Request("GET", "http://localhost/", headers=[("host", host) for host in hosts]))


async def test_another_name_is_refused_with_the_remedy():
    """The error has the common shape and comes before the application."""
    assert (await ask("localhost")).text == "in"
    for hosts in (["evil.example"], ["localhost", "evil.example"], [""]):
        answer = await ask(*hosts)
        assert answer.status_code == 421
        assert "--allowed_hosts" in answer.json()["error"]["message"]
        assert answer.json()["detail"] == answer.json()["error"]["message"]
