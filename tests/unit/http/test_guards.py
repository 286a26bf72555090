"""By which names a server may be called."""

import httpx
import pytest
from starlette.responses import PlainTextResponse

from nat.http.guards import Guard, HostCheck, HostNames

LOOPBACK = ["localhost", "localhost:8000", "LOCALHOST.:80", "127.0.0.1", "127.0.0.1:8000", "[::1]:8000", "127.1.2.3"]
REBOUND = ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"]
REBOUND += ["localhost:80@evil.example", "localhost:evil.example", "127.0.0.1:80:evil.example", "[::1]:80@evil.example"]


@pytest.mark.parametrize("bound", ["localhost", "127.0.0.1", "::1"])
def test_what_only_this_machine_can_reach_is_called_so(bound):
    """A page that gave its own name this machine's address comes with its own name."""
    names = HostNames(bound)
    assert all(map(names.match, LOOPBACK))
    assert not any(map(names.match, REBOUND))


@pytest.mark.parametrize("bound", ["0.0.0.0", "::", "10.0.0.1", "box.example"])  # noqa: S104 - not bound here
def test_what_others_can_reach_is_called_as_they_know_it(bound):
    """Containers and other machines have names of their own for it; its key keeps pages out."""
    assert all(map(HostNames(bound).match, [*LOOPBACK, *REBOUND, "host.docker.internal:8000"]))


def test_named_names_are_the_only_further_ones():
    """Of a proxy in front of loopback, or of a server that others can reach."""
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
    """In the common shape, before the application is called."""
    assert (await ask("localhost")).text == "in"
    for hosts in (["evil.example"], ["localhost", "evil.example"], [""]):
        answer = await ask(*hosts)
        assert answer.status_code == 421
        assert "--allowed_hosts" in answer.json()["error"]["message"]
        assert answer.json()["detail"] == answer.json()["error"]["message"]
