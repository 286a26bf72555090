"""Keys, origins and sizes decide whether the server admits a request."""

import pytest
from pydantic import ValidationError

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
            await client.post("/generate", json="x", headers=headers),
        ):
            assert answer.status_code == status
            assert status == 200 or "NAT_SERVE_API_KEY" in answer.json()["error"]["message"]


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
