"""Whatever is sent to ART's routes, most of them without a key: an answer, or an error that says what is wrong."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.json_bodies import bodies, check_answer, with_fields
from fakes.keys import KEY
from nat.wire.art import (
    ArtBucketRequest,
    ArtDeleteRequest,
    ArtLogRequest,
    ArtModel,
    ArtPrepareRequest,
    ArtTrainRequest,
)
from nat.wire.serverless import ServerlessDeleteRequest, ServerlessModelRequest, ServerlessTrainRequest

SCHEMAS = {
    "/register": ArtModel.model_json_schema(),
    "/_get_step": ArtModel.model_json_schema(),
    "/_prepare_backend_for_training": ArtPrepareRequest.model_json_schema(),
    "/_train_model": ArtTrainRequest.model_json_schema(),
    "/_log": ArtLogRequest.model_json_schema(),
    "/_delete_checkpoints": ArtModel.model_json_schema(),
    "/_delete_checkpoint_files": ArtDeleteRequest.model_json_schema(),
    "/_experimental_pull_from_s3": with_fields(ArtBucketRequest.model_json_schema(), s3_bucket={"enum": ["theirs"]}),
    "/v1/preview/models": ServerlessModelRequest.model_json_schema(),
    "/v1/preview/training-jobs": ServerlessTrainRequest.model_json_schema(),
    "/v1/preview/models/m/checkpoints": ServerlessDeleteRequest.model_json_schema(),
}
fuzzed = settings(max_examples=25, suppress_health_check=list(HealthCheck))
"""A client is made once for all examples of a test."""


@pytest.mark.parametrize("path", SCHEMAS)
@fuzzed
@given(data=st.data())
async def test_no_body_makes_the_server_fail(client, path, data):
    """And it is there for the next one."""
    method = "DELETE" if path.endswith("/m/checkpoints") else "POST"
    headers = {"authorization": f"Bearer {KEY}"}
    content = data.draw(bodies(SCHEMAS[path]))
    check_answer(await client.request(method, path, content=content, headers=headers))
    assert (await client.get("/health")).status_code == 200
