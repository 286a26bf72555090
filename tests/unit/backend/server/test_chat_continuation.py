"""A chat continues its sampled tokens, for all kinds of requests and responses."""

import pytest

from fakes.scripted_worker import ScriptedWorker
from fakes.sse import chunks_of
from nat.wire.openai_api import SESSION_HEADER

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>'
HELLO = {"role": "user", "content": "hello"}
MORE = {"role": "user", "content": "more"}


async def ask(client, messages, *, session=None, **fields):
    body = {"model": "scripted", "messages": messages, "return_token_ids": True} | fields
    headers = {} if session is None else {SESSION_HEADER: session}
    answer = await client.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return whole(chunks_of(answer.text)) if fields.get("stream") else answer.json()


def whole(chunks):
    """One answer as a client joins it from a stream: the first chunk's fields and the joined choices."""
    choices = {}
    for part in (choice for chunk in chunks for choice in chunk["choices"]):
        made = choices.setdefault(part["index"], {"message": {"role": "assistant", "content": ""}, "token_ids": []})
        made["message"]["content"] += part["delta"].get("content") or ""
        if part["delta"].get("tool_calls"):
            made["message"].setdefault("tool_calls", []).extend(part["delta"]["tool_calls"])
        made["token_ids"] += part.get("token_ids", [])
    for choice in choices.values():
        for call in choice["message"].get("tool_calls", []):
            del call["index"]
    return {**chunks[0], "choices": [choices[index] for index in sorted(choices)]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["the end\n", f"so the{CALL}", f"{CALL}\n{CALL}"])
async def test_the_next_turn_continues_the_sampled_tokens(connect, loaded, stream, text):
    """Whole or streamed, with text or calls, each of several choices can be continued."""
    asked = {"n": 2, "tools": TOOLS, "stream": stream}
    async with connect(ScriptedWorker(loaded, text, "then the", by_letter=True)) as client:
        first = await ask(client, [HELLO], **asked)
        for choice in first["choices"]:
            later = await ask(client, [HELLO, choice["message"], MORE], **asked)
            sampled = first["prompt_token_ids"] + choice["token_ids"]
            assert later["prompt_token_ids"][: len(sampled)] == sampled
            assert loaded.tokenizer.hf.decode(later["prompt_token_ids"][len(sampled) :]).startswith(
                "\n<|im_start|>user"
            )
            assert "broken_prefix" not in later
    assert len(choice["token_ids"]) == len("then the") + 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_broken_prefix_is_reported_with_the_tokens(connect, loaded, stream):
    """Without a request for tokens, the answer has only OpenAI's fields."""
    history = [HELLO, {"role": "assistant", "content": "never said"}, MORE]
    async with connect(ScriptedWorker(loaded, "the end")) as client:
        told = await ask(client, history, stream=stream)
        plain = await ask(client, history, stream=stream, return_token_ids=False)
    assert told["broken_prefix"] == "not_served"
    assert "broken_prefix" not in plain


async def test_sessions_with_equal_texts_keep_their_own_tokens(connect, loaded):
    """The session header distinguishes two generations of one example; without it the newest is used."""
    workers = {"a": True, "b": False}
    heads = {}
    async with connect(worker := ScriptedWorker(loaded, "the")) as client:
        for session, by_letter in workers.items():
            worker.by_letter = by_letter
            answer = await ask(client, [HELLO], session=session)
            heads[session] = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
        history = [HELLO, {"role": "assistant", "content": "the"}, MORE]
        prompts = {s: (await ask(client, history, session=s))["prompt_token_ids"] for s in ("a", "b", None)}
    assert all(prompts[s][: len(head)] == head for s, head in heads.items())
    assert prompts[None] == prompts["b"] != prompts["a"]


async def test_a_stop_string_is_followed_by_the_end_of_the_turn(connect, loaded):
    """The client's text ends before the stop string; the sampled tokens end after it."""
    async with connect(ScriptedWorker(loaded, "look here: and", by_letter=True)) as client:
        first = await ask(client, [HELLO], stop=["here:"])
        choice = first["choices"][0]
        later = await ask(client, [HELLO, choice["message"], MORE])
    sampled = [*first["prompt_token_ids"], *choice["token_ids"], loaded.tokenizer.eos_token_id]
    assert choice["message"]["content"] == "look "
    assert later["prompt_token_ids"][: len(sampled)] == sampled
