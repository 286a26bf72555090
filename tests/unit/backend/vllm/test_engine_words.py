"""Answers of vLLM are read as those of the embedded engine: it gets tokens and gives tokens."""

import json

import httpx
import pytest

from fakes.call_templates import TEMPLATES
from fakes.keys import KEY
from fakes.scripted_worker import ScriptedWorker
from fakes.sse import chunks_of
from nat.backend.server.app import create_app

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


async def answers(engine, model):
    """The same request whole and streamed; what is read from the tokens."""
    transport = httpx.ASGITransport(app=create_app(engine, api_key=KEY))
    body = {"model": model, "messages": [{"role": "user", "content": "2+2?"}], "tools": [TOOL], "max_tokens": 200}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://backend", headers={"authorization": f"Bearer {KEY}"}
    ) as client:
        whole = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]
        stream = await client.post("/v1/chat/completions", json=body | {"stream": True})
    deltas = [choice for chunk in chunks_of(stream.text) for choice in chunk["choices"]]
    found = [
        (message.get("content") or "", message.get("reasoning_content") or "", message.get("tool_calls") or [])
        for message in (whole["message"], *(each["delta"] for each in deltas))
    ]
    calls = [[json.dumps(call["function"]) for call in each[2]] for each in found]
    streamed = ["".join(each[place] for each in found[1:]) for place in (0, 1)]
    return [
        (*found[0][:2], calls[0], whole["finish_reason"]),
        (*streamed, [each for own in calls[1:] for each in own], deltas[-1]["finish_reason"]),
    ]


@pytest.mark.parametrize(
    ("family", "text", "reason"),
    [
        ("hermes", f"<think>\nHm.\n</think>\n\nSo: {CALL}{CALL}", "tool_calls"),
        ("hermes", f"<think>\nHm. {CALL}\n</think>\n\nNo.", "stop"),
        ("hermes", CALL.removesuffix("</tool_call>"), "stop"),
        ("llama", '{"name": "add", "parameters": {"a": 1}}', "tool_calls"),
    ],
)
async def test_calls_thinking_and_the_stop_token_are_read_alike(opened, family, text, reason):
    """Both engines give the same message, whole and streamed; Llama's call is closed by the stop token alone."""
    served = opened(output=None)
    tokenizer = served.loaded.tokenizer
    tokenizer.hf.chat_template = TEMPLATES[family].replace("<|eot_id|>", "<|im_end|>")
    served.vllm.script = [*tokenizer.encode_rendered(text), tokenizer.eos_token_id]
    own = await answers(ScriptedWorker(served.loaded, text), "scripted")
    assert await answers(served.engine, "m") == own
    assert own[0] == own[1]
    assert own[0][3] == reason
