"""`/chat`, `/chat/stream` and `/v1/chat/completions`, with the OpenAI SDK where it is the client."""

import pytest
from openai import APIError, AsyncOpenAI, InternalServerError

from fakes.openai_server import OpenAIServer, Say
from fakes.scripted_workflow import ScriptedWorkflow
from fakes.served_workflow import serving, url_of
from nat.builder.builder import Builder
from nat.data_models.api_server import ChatResponse, ChatResponseChunk
from nat.front_end.conversion import chunk_text

MESSAGES = [
    {"role": "system", "content": "be loud"},
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": "FIRST"},
    {"role": "user", "content": [{"type": "text", "text": "second"}]},
]


async def shout(question):
    return f"{question}!"


def sdk(client) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url_of(client)}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("route", ["/chat", "/v1/chat/completions"])
async def test_a_workflow_with_one_text_gets_the_last_user_message(tmp_path, route):
    """The answer has OpenAI's shape, and the model's name of the request, else that of the workflow."""
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
    """As its own exceptions, with the workflow's text."""

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
    ],
)
async def test_what_is_no_chat(tmp_path, body, told):
    """A request that a text cannot be taken from is the client's to mend."""
    async with serving(ScriptedWorkflow(tmp_path, shout, [])) as client:
        answer = await client.post("/chat", json=body)
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
    """The tokens of all LLM calls of the workflow, summed."""

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


async def test_a_text_that_does_not_fit_the_workflow_is_the_clients_to_mend(tmp_path):
    """422, before anything is played; the workflow is not to blame."""

    async def double(number: int) -> int:
        return 2 * number

    scripted = ScriptedWorkflow(tmp_path, shout, [])
    scripted.function = double
    async with serving(scripted) as client:
        fits = await client.post("/chat", json={"messages": [{"role": "user", "content": "21"}]})
        answer = await client.post("/chat", json={"messages": [{"role": "user", "content": "many"}]})
    assert fits.json()["choices"][0]["message"]["content"] == "42"
    assert answer.status_code == 422
    assert "'many' (str) is no int" in answer.json()["error"]["message"]
