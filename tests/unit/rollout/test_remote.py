"""A rollout of a workflow behind a URL."""

import asyncio

import httpx
import pytest

from fakes.openai_server import OpenAIServer, Say
from fakes.scripted_workflow import ScriptedWorkflow
from fakes.served_workflow import serving, url_of
from nat.builder.builder import Builder
from nat.capture.context import CapturePolicy, address_of, redirecting
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.errors import BackendUnreachable
from nat.rollout.remote import ENDPOINT_TIMEOUT, open_remote
from nat.rollout.rollout import run_rollout
from nat.wire.rollout import KEY_VARIABLE, PROTOCOL_VERSION, ROLLOUT_HEADER

EXACT = CapturePolicy(logprobs=True, token_ids=True, seed=11)
WHOLE = {ROLLOUT_HEADER: PROTOCOL_VERSION}


def item(question: object = "q") -> EvalInputItem:
    return EvalInputItem(id="a#1", input_obj=question, expected_output_obj=None)


async def played(remote, *, question: object = "q", policy=EXACT, deadline=None) -> Rollout:
    return await run_rollout(
        remote,
        item(question),
        seed=7,
        generation=2,
        policy=policy,
        deadline=deadline,
        deadline_option=ENDPOINT_TIMEOUT,
    )


def to(client: httpx.AsyncClient):
    return open_remote(url_of(client), trains=True)


async def answered(*responses: tuple[int, bytes], headers=WHOLE, trains=True) -> Rollout:
    """A rollout against a server that is healthy and answers as scripted."""
    told = iter(responses)

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"status": "healthy"}, headers=headers)
        status, content = next(told)
        return httpx.Response(status, content=content, headers=headers)

    async with open_remote("http://there/", trains=trains, transport=httpx.MockTransport(handle)) as remote:
        return await played(remote)


async def test_the_output_is_the_workflows(tmp_path):
    """Any JSON is returned unchanged, even with the field names of the protocol."""

    async def look(question):
        return {"value": 1, "error": {"type": "x", "message": question}}

    async with serving(ScriptedWorkflow(tmp_path, look, [])) as client, to(client) as remote:
        rollout = await played(remote)
    assert rollout.error is None
    assert rollout.output == {"value": 1, "error": {"type": "x", "message": "q"}}
    assert [step.event_type for step in rollout.steps] == [
        "WORKFLOW_START",
        "FUNCTION_START",
        "FUNCTION_END",
        "WORKFLOW_END",
    ]


async def test_a_remote_exception_fails_the_rollout(tmp_path):
    """The error has the server's message and address; earlier steps are kept, and there is no output."""

    async def fails(question):
        raise KeyError("board")

    async with serving(ScriptedWorkflow(tmp_path, fails, [])) as client, to(client) as remote:
        rollout = await played(remote)
    assert rollout.output is None
    assert str(rollout.error) == f"RemoteFailure: KeyError: 'board' (in the workflow at {url_of(client)})"
    assert len(rollout.steps) == 4


@pytest.mark.parametrize(
    ("status", "content", "told"),
    [
        (500, b"out of order", "answers 500: out of order"),
        (422, b'{"error": {"type": "invalid_request_error", "message": "no"}}', "422: invalid_request_error: no"),
        (200, b"", "the answer ended without a result"),
        (200, b"intermediate_data: {}\n", "sent an invalid step"),
        (200, b'data: {"value"\n', "sent data that is not JSON"),
    ],
)
async def test_an_answer_without_a_result_is_a_failure(status, content, told):
    """The failure has its cause and is never an empty output with a score of 0."""
    rollout = await answered((status, content))
    assert rollout.output is None
    assert rollout.error is not None
    assert rollout.error.kind == "raised"
    assert told in rollout.error.message


async def test_a_slow_rollout_times_out(tmp_path):
    """The error names the option of the limit, and the remote workflow is cancelled."""
    cancelled = asyncio.Event()

    async def hangs(question):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving(ScriptedWorkflow(tmp_path, hangs, [])) as client:
        async with to(client) as remote:
            rollout = await played(remote, deadline=1)
        await asyncio.wait_for(cancelled.wait(), 10)
    assert rollout.error is not None
    assert (rollout.error.kind, rollout.error.message) == ("timeout", "no answer within 1 s (--endpoint_timeout)")


async def test_a_refused_connection_is_an_error():
    """The error comes before the first rollout, with the address and a remedy."""
    with pytest.raises(BackendUnreachable, match=r"no served workflow answers at http://127.0.0.1:9: (?s:.*)nat serve"):
        async with open_remote("http://127.0.0.1:9", trains=False):
            pass


async def test_the_key_comes_from_the_environment(tmp_path, monkeypatch):
    """Both sides use the same variable; without it the error names it."""

    async def echo(question):
        return question

    async with serving(ScriptedWorkflow(tmp_path, echo, []), api_key="secret") as client:
        monkeypatch.delenv(KEY_VARIABLE, raising=False)
        with pytest.raises(BackendUnreachable, match=KEY_VARIABLE):
            async with open_remote(url_of(client), trains=True):
                pass
        monkeypatch.setenv(KEY_VARIABLE, "secret")
        async with to(client) as remote:
            assert (await played(remote)).output == "q"


async def asks(question):
    client = await Builder.current().get_llm("student", "openai")
    reply = await client.chat.completions.create(model="base", messages=[{"role": "user", "content": question}])
    return reply.choices[0].message.content


def asking(tmp_path, server) -> ScriptedWorkflow:
    scripted = ScriptedWorkflow(tmp_path, asks, [])
    scripted.config["llms"] = {
        "student": {"_type": "openai", "model_name": "base", "base_url": server.base_url, "api_key": "k"}
    }
    return scripted


async def test_a_remote_workflow_uses_the_trained_model(tmp_path):
    """Its YAML may name the base model, unless the LLM is frozen; the redirected name may change."""
    async with OpenAIServer(lambda _request: Say("ok")) as server, serving(asking(tmp_path, server)) as client:
        address = address_of(server.base_url)
        async with to(client) as remote:
            with redirecting() as redirects:
                for name in ("run@0", "run@1"):
                    redirects.send(address, "base", name)
                    assert (await played(remote)).error is None
            assert (await played(remote)).error is None
            with redirecting() as redirects:
                redirects.send(address, "base", "run@1", frozen_llms={"student"})
                assert (await played(remote)).error is None
        assert [body["model"] for body in server.bodies] == ["run@0", "run@1", "base", "base"]


async def test_a_remote_workflow_with_the_untrained_model_fails(tmp_path):
    """The rollout's error says what the remote YAML needs."""
    async with (
        OpenAIServer(lambda _request: Say("ok")) as server,
        serving(asking(tmp_path, server)) as client,
        to(client) as remote,
    ):
        with redirecting() as redirects:
            redirects.send(address_of("http://trainer:8000/v1"), "base", "run")
            rollout = await played(remote)
    assert rollout.error is not None
    assert "called base, not the trained model" in rollout.error.message
    assert "llms.student needs model_name run, or a base_url at trainer:8000" in rollout.error.message
