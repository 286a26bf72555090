"""`/generate…`, `/chat…` and `/v1/chat/completions`, with the OpenAI SDK where it is the client."""

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
from openai import APIError, AsyncOpenAI, InternalServerError

from fakes.openai_server import OpenAIServer, Say
from fakes.scripted_workflow import ScriptedWorkflow
from fakes.served_workflow import serving, url_of
from nat.builder.builder import Builder
from nat.builder.context import Context
from nat.capture.context import ReplacedSampling, capture_context
from nat.data_models.api_server import ChatResponse, ChatResponseChunk
from nat.data_models.intermediate_step import IntermediateStepPayload
from nat.front_end.conversion import chunk_text
from nat.wire.rollout import PROTOCOL_VERSION, ROLLOUT_HEADER, RolloutOptions


async def shout(question):
    return f"{question}!"


def lines(text: str, prefix: str) -> list[dict]:
    return [json.loads(line.removeprefix(prefix)) for line in text.splitlines() if line.startswith(prefix)]


@pytest.mark.parametrize("body", [{"question": "hi"}, {"input_message": "hi"}, "hi"])
async def test_an_input_may_have_any_of_its_names(tmp_path, body):
    """The input may have the name of the workflow's argument, the name of the toolkit's clients, or none."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client:
        answer = await client.post("/generate", json=body)
    assert (answer.status_code, answer.json()) == (200, {"value": "hi!"})


async def test_an_object_is_returned_unchanged(tmp_path):
    """Any other result is returned as `value`."""

    async def board(question):
        return {"move": [1, 2]}

    async with serving(ScriptedWorkflow(tmp_path, board, [])) as client:
        assert (await client.post("/generate", json="x")).json() == {"move": [1, 2]}
        assert lines((await client.post("/generate/stream", json="x")).text, "data: ") == [{"move": [1, 2]}]


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        (b"{", 400, "the body is not JSON"),
        (b'{"answer": "x"}', 422, "takes question: question: this key is required"),
        (b"[null, null]", 422, "[None, None] (list) cannot be converted to str"),
        (b"null", 422, "None (NoneType) cannot be converted to str"),
        (b'{"input_message": [1]}', 422, "[1] (list) cannot be converted to str"),
    ],
)
async def test_errors_of_the_client(tmp_path, content, status, told):
    """The status is 4xx, the message names what was expected, and the workflow does not run."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client:
        answer = await client.post("/generate", content=content)
    assert answer.status_code == status
    assert told in answer.json()["error"]["message"] == answer.json()["detail"]


async def test_a_workflow_that_raises(tmp_path):
    """The status is 500 with the exception's name and text; in a stream, the last line has them."""

    async def fails(question):
        raise KeyError("board")

    async with serving(ScriptedWorkflow(tmp_path, fails, [])) as client:
        answer = await client.post("/generate", json="x")
        streamed = await client.post("/generate/stream", json="x")
        full = await client.post("/generate/full", json="x")
    assert answer.status_code == 500
    assert (answer.json()["error"]["type"], answer.json()["error"]["message"]) == ("KeyError", "'board'")
    assert streamed.status_code == full.status_code == 200
    assert lines(streamed.text, "data: ") == lines(full.text, "data: ") == [answer.json()]


async def test_a_deadline_is_reported_as_a_timeout(tmp_path):
    """The status is 504, and the error names the option."""

    async def hangs(question):
        await asyncio.Event().wait()

    scripted = ScriptedWorkflow(tmp_path, hangs, [])
    scripted.general["item_timeout"] = 0.01
    async with serving(scripted) as client:
        answer = await client.post("/generate", json="x")
    assert answer.status_code == 504
    assert "eval.general.item_timeout" in answer.json()["detail"]


async def test_steps_as_the_toolkits_clients_read_them(tmp_path):
    """Each step's payload is JSON in a text, as in the toolkit's class; the result is the last line."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client:
        answer = await client.post("/generate/full", json={"input_message": "hi"})
    steps = lines(answer.text, "intermediate_data: ")
    names = [IntermediateStepPayload.model_validate_json(step["payload"]).event_type for step in steps]
    assert names == ["WORKFLOW_START", "FUNCTION_START", "FUNCTION_END", "WORKFLOW_END"]
    assert {key for step in steps for key in step} == {"id", "type", "name", "parent_id", "payload"}
    assert answer.text.splitlines()[-2] == 'data: {"value":"hi!"}'
    assert ROLLOUT_HEADER not in answer.headers


async def test_options_make_a_training_rollout(tmp_path):
    """The workflow gets the rollout's seed and purpose, and its steps are complete."""
    seen, replaced = [], []

    async def look(question):
        seen.append((Context.get().rollout_seed, Context.get().is_evaluating, Context.get().workflow_run_id))
        replaced.append(capture_context().rollout.policy.replaced)
        return {"value": question}

    options = RolloutOptions(item_id="Übung", generation=3, seed=5, temperature=0.8, target_model="student")
    async with serving(ScriptedWorkflow(tmp_path, look, [])) as client:
        headers = {ROLLOUT_HEADER: options.header()}
        answer = await client.post("/generate/full", json={"input_message": "hi"}, headers=headers)
        bad = await client.post("/generate/full", json={"input_message": "x"}, headers={ROLLOUT_HEADER: "{}"})
        none = await client.post("/generate/full", json={"question": "x"}, headers=headers)
        plain = await client.post("/generate", json="x")
    assert seen[0] == (5, True, "Übung#3")
    assert replaced == [ReplacedSampling(0.8, "student"), None]
    assert seen[1][:2] == (None, False)
    assert answer.headers[ROLLOUT_HEADER] == PROTOCOL_VERSION
    assert lines(answer.text, "data: ") == [{"value": {"value": "hi"}}]
    ancestry = [step["function_ancestry"]["function_name"] for step in lines(answer.text, "intermediate_data: ")]
    assert ancestry == ["root", "<workflow>", "<workflow>", "root"]
    assert (bad.status_code, none.status_code, plain.status_code) == (400, 400, 200)


async def test_a_workflow_that_streams(tmp_path):
    """Each piece is a line; a workflow that only streams is an error on routes with a single result."""

    async def words(question: str) -> AsyncGenerator[str, None]:
        for word in question.split():
            yield word

    scripted = ScriptedWorkflow(tmp_path, shout, [])
    scripted.function = words
    async with serving(scripted) as client:
        streamed = await client.post("/generate/stream", json="a b")
        whole = await client.post("/generate", json="a b")
    assert lines(streamed.text, "data: ") == [{"value": "a"}, {"value": "b"}]
    assert "only streams" in whole.json()["detail"]


async def test_closing_the_connection_cancels_the_workflow(tmp_path):
    """Closing the connection cancels the request, whole or streamed."""
    for route in ("/generate", "/generate/stream", "/generate/full", "/v1/chat/completions"):
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def hangs(question, started=started, cancelled=cancelled):
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        body = {"messages": [{"role": "user", "content": "x"}]} if "chat" in route else "x"
        async with serving(ScriptedWorkflow(tmp_path, hangs, [])) as client:
            asking = asyncio.create_task(client.post(route, json=body))
            await started.wait()
            asking.cancel()
            assert await asyncio.wait_for(cancelled.wait(), 10)


async def test_requests_beyond_the_limit_wait(tmp_path):
    """`eval.general.max_concurrency` limits concurrent requests; all are answered."""
    running, most = 0, 0

    async def counts(question):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return question

    scripted = ScriptedWorkflow(tmp_path, counts, [])
    scripted.general["max_concurrency"] = 2
    async with serving(scripted) as client:
        answers = await asyncio.gather(*(client.post("/generate", json=f"{n}") for n in range(8)))
    assert [answer.json()["value"] for answer in answers] == [f"{n}" for n in range(8)]
    assert most == 2


async def test_health_and_description(tmp_path):
    """Health answers as the toolkit's; the API page describes the workflow's own arguments."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client:
        health = await client.get("/health")
        page = await client.get("/docs")
        description = (await client.get("/openapi.json")).json()
    assert health.json() == {"status": "healthy"}
    assert health.headers[ROLLOUT_HEADER] == PROTOCOL_VERSION
    assert "text/html" in page.headers["content-type"]
    assert sorted(description["paths"]) == [
        "/chat",
        "/chat/stream",
        "/generate",
        "/generate/full",
        "/generate/stream",
        "/health",
        "/v1/chat/completions",
    ]
    body = description["paths"]["/generate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert [list(choice["properties"]) for choice in body["anyOf"]] == [["question"], ["input_message"]]


MESSAGES = [
    {"role": "system", "content": "be loud"},
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": "FIRST"},
    {"role": "user", "content": [{"type": "text", "text": "second"}]},
]


def sdk(client) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url_of(client)}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("route", ["/chat", "/v1/chat/completions"])
async def test_a_workflow_with_one_text_gets_the_last_user_message(tmp_path, route):
    """The answer has OpenAI's shape with the request's model name, else the workflow's."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client:
        named = (await client.post(route, json={"messages": MESSAGES, "model": "mine"})).json()
        unnamed = (await client.post(route, json={"messages": MESSAGES})).json()
    assert named["choices"][0]["message"] == {"role": "assistant", "content": "second!"}
    assert (named["object"], named["model"], unnamed["model"]) == ("chat.completion", "mine", "test")


async def test_the_openai_client(tmp_path):
    """Whole and streamed, the SDK reads the same text."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client, sdk(client) as openai:
        whole = await openai.chat.completions.create(model="m", messages=MESSAGES)
        stream = await openai.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        chunks = [chunk async for chunk in stream]
        other = await client.post("/chat/stream", json={"messages": MESSAGES})
    assert whole.choices[0].message.content == "second!"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "second!"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert other.text.endswith("data: [DONE]\n\n")


async def test_failures_reach_the_openai_client(tmp_path):
    """The SDK raises its own exceptions with the workflow's text."""

    async def fails(question):
        raise KeyError("board")

    async with serving(ScriptedWorkflow(tmp_path, fails, [])) as client, sdk(client) as openai:
        with pytest.raises(InternalServerError, match="board"):
            await openai.chat.completions.create(model="m", messages=MESSAGES)
        stream = await openai.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        with pytest.raises(APIError, match="board"):
            [chunk async for chunk in stream]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"messages": "hi"}, "a chat needs `messages`"),
        ({"messages": [{"role": "system", "content": "x"}]}, "no user message"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "has no text"),
        ({"messages": MESSAGES, "model": [1]}, "model: wanted a name"),
    ],
)
@pytest.mark.parametrize("path", ["/chat", "/chat/stream"])
async def test_an_invalid_chat_is_refused(tmp_path, path, body, told):
    """A request without a usable text, or with a model that each event of a stream would repeat."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 400
    assert told in answer.json()["detail"]


async def test_a_workflow_that_takes_messages_gets_all(tmp_path):
    """An agent that is a chat model itself sees the whole conversation."""

    async def count(messages: list[dict]) -> str:
        return f"{len(messages)} messages"

    scripted = ScriptedWorkflow(tmp_path, shout, [])
    scripted.function = count
    async with serving(scripted) as client:
        answer = await client.post("/chat", json={"messages": MESSAGES})
    assert answer.json()["choices"][0]["message"]["content"] == "4 messages"


async def test_usage_is_that_of_the_calls(tmp_path):
    """The usage is the sum over all LLM calls of the workflow."""

    async def asks(question):
        client = await Builder.current().get_llm("model", "openai")
        for _ in range(2):
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": question}])
        return "done"

    async with OpenAIServer(lambda _request: Say("four")) as server:
        scripted = ScriptedWorkflow(tmp_path, asks, [])
        scripted.config["llms"] = {
            "model": {"_type": "openai", "model_name": "m", "base_url": server.base_url, "api_key": "k"}
        }
        async with serving(scripted) as client:
            answer = (await client.post("/chat", json={"messages": [{"role": "user", "content": "hi"}]})).json()
    usage = answer["usage"]
    assert usage["completion_tokens"] == 2 * len(b"four\0")
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_a_chat_answer_and_its_chunks_reach_the_client_as_they_are(tmp_path):
    """A workflow may answer with the API's own types, whole and streamed."""

    async def answers(question):
        return ChatResponse.from_string(f"{question}!", id_="chatcmpl-mine", model="mine")

    async with serving(ScriptedWorkflow(tmp_path, answers, [])) as client:
        whole = (await client.post("/chat", json={"messages": MESSAGES})).json()
    assert (whole["id"], whole["model"], whole["choices"][0]["message"]["content"]) == (
        "chatcmpl-mine",
        "mine",
        "second!",
    )
    assert chunk_text(ChatResponseChunk.from_string("sec")) == "sec"
