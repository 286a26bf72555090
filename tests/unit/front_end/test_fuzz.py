"""Any request to the routes of the OpenAPI page gets a response or an error with its cause."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.json_bodies import bodies, check_answer
from fakes.scripted_workflow import ScriptedWorkflow
from fakes.served_workflow import serving


async def shout(question: str, times: int = 1) -> str:
    return f"{question}!"[:times]


@pytest.fixture
async def described(tmp_path):
    """A client, and the schema of each route that takes a body."""
    scripted = ScriptedWorkflow(tmp_path, shout, [])
    scripted.function = shout
    async with serving(scripted) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
        yield (
            client,
            {
                path: methods["post"]["requestBody"]["content"]["application/json"]["schema"]
                for path, methods in paths.items()
                if "post" in methods
            },
        )


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_no_body_makes_the_server_fail(described, data):
    """No random body crashes a route; the server answers the next request."""
    client, schemas = described
    path = data.draw(st.sampled_from(sorted(schemas)))
    headers = data.draw(st.sampled_from([{}, {"X-Nat-Rollout": "{}"}, {"X-Nat-Rollout": '{"item_id": "1"}'}]))
    check_answer(await client.post(path, content=data.draw(bodies(schemas[path])), headers=headers))
    assert (await client.get("/health")).status_code == 200
