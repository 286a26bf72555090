"""Any body sent to ART's routes gets an answer or an error with its cause."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.json_bodies import bodies, check_answer
from fakes.keys import KEY
from nat.art.server.serverless import (
    ServerlessDeleteRequest,
    ServerlessModelRequest,
    ServerlessTrainRequest,
)
from nat.art.wire import (
    ArtDeleteRequest,
    ArtModel,
    ArtPrepareRequest,
    ArtTrainRequest,
)

SCHEMAS = {
    "/register": ArtModel.model_json_schema(),
    "/_get_step": ArtModel.model_json_schema(),
    "/_prepare_backend_for_training": ArtPrepareRequest.model_json_schema(),
    "/_train_model": ArtTrainRequest.model_json_schema(),
    "/_delete_checkpoint_files": ArtDeleteRequest.model_json_schema(),
    "/v1/preview/models": ServerlessModelRequest.model_json_schema(),
    "/v1/preview/training-jobs": ServerlessTrainRequest.model_json_schema(),
    "/v1/preview/models/m/checkpoints": ServerlessDeleteRequest.model_json_schema(),
}
WITHOUT_BODY = {"/close", "/v1/preview/models/m", "/v1/preview/sft-training-jobs"}
fuzzed = settings(max_examples=25, suppress_health_check=list(HealthCheck))
"""All examples of a test share one client."""


def test_all_routes_that_take_a_body_are_tried(routers):
    """The fuzz test covers every route with a body, new ones included."""
    routes = [route for router in routers for route in router.routes if route.methods & {"POST", "DELETE"}]
    assert {route.path.replace("{model_id}", "m") for route in routes} == SCHEMAS.keys() | WITHOUT_BODY


@pytest.mark.parametrize("path", SCHEMAS)
@fuzzed
@given(data=st.data())
async def test_no_body_makes_the_server_fail(client, path, data):
    """The server answers the next request after any body."""
    method = "DELETE" if path.endswith("/m/checkpoints") else "POST"
    headers = {"authorization": f"Bearer {KEY}"}
    content = data.draw(bodies(SCHEMAS[path]))
    check_answer(await client.request(method, path, content=content, headers=headers))
    assert (await client.get("/health")).status_code == 200
