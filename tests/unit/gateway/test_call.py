"""Model servers whose JSON has another shape than an answer."""

import json

import httpx
import pytest

from fakes.gateway import gateway
from fakes.http_server import begin_chunks, write_chunk, write_json
from fakes.openai_server import OpenAIServer

ASK = {
    "/v1/messages": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"model": "m", "input": "hi"},
}
ODD = [
    {"choices": 7},
    {"choices": [7]},
    {"choices": [{"index": 0, "message": [7], "delta": [7]}]},
    {"choices": [{"index": 0, "message": {"content": 7}, "delta": {"content": 7}}]},
    {"choices": [{"index": 0, "message": {"tool_calls": [7]}, "delta": {"tool_calls": [7]}}]},
]


class OddServer(OpenAIServer):
    """Answers every call with one object."""

    def __init__(self, odd):
        super().__init__()
        self._odd = odd

    async def answer(self, request, reader, writer):
        if request.body.get("stream"):
            begin_chunks(writer, {"content-type": "text/event-stream"})
            write_chunk(writer, f"data: {json.dumps(self._odd)}\n\ndata: [DONE]\n\n")
            write_chunk(writer, "")
        else:
            write_json(writer, 200, self._odd)
        return True


@pytest.mark.parametrize("path", ASK)
@pytest.mark.parametrize("odd", ODD, ids=map(str, ODD))
async def test_an_answer_of_another_shape_is_the_model_servers_error(path, odd):
    """The agent gets a 502, or its stream an error, that says whose fault it is; the gateway has not failed."""
    async with gateway(OddServer(odd)) as gate, gate.rollout() as rollout:
        headers = {"authorization": f"Bearer {rollout.key}"}
        async with httpx.AsyncClient(base_url=gate.url, headers=headers, trust_env=False) as client:
            whole = await client.post(path, json=ASK[path])
            streamed = await client.post(path, json={**ASK[path], "stream": True})
    assert (whole.status_code, streamed.status_code) == (502, 200)
    for answer in (whole, streamed):
        assert "the model server's response cannot be read" in answer.text
