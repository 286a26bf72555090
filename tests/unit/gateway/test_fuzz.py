"""Any request with a rollout's key gets an answer or an error in its dialect."""

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.gateway import gateway
from fakes.json_bodies import bodies, check_answer
from nat.gateway.app import ROUTES
from nat.wire.openai_requests import ChatCompletionRequest, CompletionRequest

TEXT = {"type": "string"}
PART = {
    "type": "object",
    "properties": {
        "type": {"enum": ["text", "input_text", "output_text", "tool_use", "tool_result", "image", "refusal"]},
        "text": TEXT,
        "id": TEXT,
        "input": {},
        "content": TEXT,
    },
    "required": ["type"],
}
ITEM = {
    "type": "object",
    "properties": {
        "type": {"enum": ["message", "function_call", "function_call_output", "reasoning"]},
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {"anyOf": [TEXT, {"type": "array", "items": PART}]},
        "call_id": TEXT,
        "name": TEXT,
        "arguments": TEXT,
        "output": {},
    },
    "required": ["role", "content"],
}
TOOLS = {"type": "array", "items": {"type": "object", "properties": {"type": {"enum": ["function"]}, "name": TEXT}}}
CONVERSATION = {"anyOf": [TEXT, {"type": "array", "items": ITEM}]}
SCHEMAS = {
    "/v1/chat/completions": ChatCompletionRequest.model_json_schema(),
    "/v1/completions": CompletionRequest.model_json_schema(),
    "/v1/responses": {
        "type": "object",
        "properties": {"model": TEXT, "input": CONVERSATION, "tools": TOOLS, "stream": {"type": "boolean"}},
        "required": ["input"],
    },
    "/v1/messages": {
        "type": "object",
        "properties": {"model": TEXT, "messages": CONVERSATION, "tools": TOOLS, "max_tokens": {"type": "integer"}},
        "required": ["messages", "max_tokens"],
    },
}


@pytest.fixture
async def rollout():
    async with gateway() as gate, gate.rollout() as rollout:
        headers = {"authorization": f"Bearer {rollout.key}"}
        async with httpx.AsyncClient(base_url=gate.url, headers=headers, trust_env=False) as client:
            yield client


def test_all_routes_are_tried():
    """A new dialect is tried as well."""
    assert SCHEMAS.keys() == ROUTES.keys()


@pytest.mark.parametrize("path", SCHEMAS)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_no_body_makes_the_gateway_fail(rollout, path, data):
    """No random body crashes the server, which answers the next request."""
    check_answer(await rollout.post(path, content=data.draw(bodies(SCHEMAS[path]))))
    assert (await rollout.get("/health")).status_code == 200
