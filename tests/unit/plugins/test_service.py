"""An agent's own server as workflow: how its calls find their rollout, and how it fails."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from fakes.http_server import HttpServer, SeenRequest, write_json
from fakes.openai_replies import Say
from fakes.openai_server import OpenAIServer
from fakes.processes import free_port, refused_port
from nat.builder.workflow import Workflow
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import CapturePolicy
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.intermediate_step import IntermediateStepType
from nat.errors import BackendUnreachable, ConfigError
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.service import ServiceConfig
from nat.registry.discovery import discover_components
from nat.rollout.rollout import run_rollout

CHAT = "/v1/chat/completions"
Serve = Callable[["AgentServer", SeenRequest], Awaitable[object]]


class AgentServer(HttpServer):
    """An agent behind a chat route, with one base URL for its model and a key that opens nothing, as in production."""

    def __init__(self, serve: Serve) -> None:
        super().__init__()
        self.gateway = f"http://127.0.0.1:{free_port()}"
        self.requests: list[SeenRequest] = []
        self._serve_request = serve

    @property
    def gateway_port(self) -> int:
        return int(self.gateway.rpartition(":")[2])

    async def answer(self, request: SeenRequest, reader, writer) -> bool:
        if request.method == "GET":
            write_json(writer, 405, {"detail": "Method Not Allowed"})
            return True
        self.requests.append(request)
        reply = await self._serve_request(self, request)
        status, body = reply if isinstance(reply, tuple) else (200, chat_answer(reply))
        write_json(writer, status, body, {"location": f"{self.base_url}/elsewhere"})
        return True

    async def ask_model(self, text: str, headers: dict[str, str]) -> str:
        """A call of the agent to its model, as a client sends it; raises on an error status."""
        body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text}]}
        async with httpx.AsyncClient(trust_env=False) as client:
            headers = {"authorization": "Bearer none", **headers}
            response = await client.post(f"{self.gateway}{CHAT}", json=body, headers=headers)
        assert response.is_success, response.text
        return response.json()["choices"][0]["message"]["content"]


def chat_answer(text: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}


async def toolkit(server: AgentServer, request: SeenRequest) -> str:
    """Sends unknown fields of its request along with its calls to the model, as the toolkit's `nat serve` does."""
    extra = {key: value for key, value in request.body.items() if key != "messages"}
    headers = {f"X-Payload-{key.replace('_', '-')}": str(value) for key, value in extra.items()}
    return await server.ask_model(request.last_text, headers)


async def own_server(server: AgentServer, request: SeenRequest) -> str:
    """Takes the key from the request."""
    return await server.ask_model(request.last_text, {"authorization": f"Bearer {request.body['nat_rollout_key']}"})


class Played:
    """An open `service` workflow, with its model and its service."""

    def __init__(self, workflow: Workflow, model: OpenAIServer, server: AgentServer) -> None:
        self.workflow = workflow
        self.model = model
        self.server = server

    async def __call__(self, value: Any = "hi", *, item: str = "1") -> Rollout:
        policy = CapturePolicy(logprobs=True, token_ids=True, seed=3)
        question = EvalInputItem(id=item, input_obj=value, expected_output_obj=None)
        return await run_rollout(self.workflow, question, seed=3, policy=policy, deadline=None)


@asynccontextmanager
async def service(serve: Serve = toolkit, *, script: Any = None, **fields: Any) -> AsyncIterator[Played]:
    discover_components()
    async with OpenAIServer(script) as model, AgentServer(serve) as server, WorkflowBuilder() as builder:
        await builder.add_llm("student", OpenAIModelConfig(model_name="tiny", base_url=model.base_url, max_retries=0))
        fields = {"url": f"{server.base_url}{CHAT}", "gateway_port": server.gateway_port, **fields}
        await builder.set_workflow(ServiceConfig(llm="student", **fields))
        yield Played(await builder.build(), model, server)


async def failure(serve: Serve, **fields: Any) -> str:
    """The reason why a rollout failed."""
    async with service(serve, **fields) as played:
        rollout = await played()
    assert rollout.error is not None
    return rollout.error.message


def llm_texts(rollout: Rollout) -> list[str]:
    ends = [step for step in rollout.steps if step.event_type is IntermediateStepType.LLM_END]
    assert all(end.metadata.llm_call.token_ids for end in ends)
    assert all(
        (end.metadata.llm_call.llm_name, end.function_ancestry.function_name) == ("student", "<workflow>")
        for end in ends
    )
    return [end.metadata.llm_call.message["content"] for end in ends]


@pytest.mark.parametrize("serve", [toolkit, own_server])
async def test_a_services_call_belongs_to_its_rollout(serve):
    """The request's field `nat_rollout_key` comes back in a header of the toolkit or as key; the call is a step."""
    async with service(serve, script=lambda request: Say(f"re: {request.last_text}")) as played:
        rollout = await played("hello")
    assert (rollout.error, rollout.output) == (None, "re: hello")
    assert llm_texts(rollout) == ["re: hello"]
    [request] = played.server.requests
    assert request.body.keys() == {"messages", "nat_rollout_key"}
    assert request.messages == [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("serve", [toolkit, own_server])
async def test_concurrent_requests_are_separate(serve):
    """One process plays many rollouts at once; each call is recorded in its own."""
    both = asyncio.Barrier(4)

    async def together(server: AgentServer, request: SeenRequest) -> object:
        await both.wait()
        return await serve(server, request)

    async with service(together, script=lambda request: Say(f"re: {request.last_text}")) as played:
        rollouts = await asyncio.gather(*(played(f"player {number}", item=str(number)) for number in range(4)))
    for number, rollout in enumerate(rollouts):
        assert [rollout.output] == llm_texts(rollout) == [f"re: player {number}"]


async def test_the_service_gets_its_key():
    """`api_key` goes to the service as a bearer token, and not to the model."""
    async with service(api_key="s3cret-of-the-service") as played:
        await played()
    assert played.server.requests[0].headers["authorization"] == "Bearer s3cret-of-the-service"
    assert "s3cret-of-the-service" not in str(played.model.requests[0].headers)


async def test_an_answer_without_a_call_fails():
    """An answer of another model or of none is not scored; the error says how the calls reach the gateway."""

    async def elsewhere(_: AgentServer, __: SeenRequest) -> str:
        return "an answer"

    message = await failure(elsewhere)
    assert "answered without a call to its model" in message
    assert "/v1, with the request's `nat_rollout_key` as its key" in message


async def test_a_key_that_is_not_passed_on_is_explained():
    """The gateway refuses the service's own key; the error of the service comes with what it has to do."""

    async def forgetful(server: AgentServer, request: SeenRequest) -> object:
        try:
            return await server.ask_model(request.last_text, {})
        except AssertionError as refused:
            return 422, {"code": "workflow_error", "message": str(refused)}

    message = await failure(forgetful)
    assert "answers with status 422" in message
    assert "this key belongs to no open rollout" in message
    assert "with the request's `nat_rollout_key` as its key" in message


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((500, {"error": {"message": "out of cheese"}}), "answers with status 500: out of cheese"),
        ((307, {}), "answers with status 307"),
        ((200, {"value": "an answer"}), 'sent no chat completion, but \'{"value": "an answer"}\''),
        ((200, {"choices": []}), "sent no chat completion"),
        ((200, chat_answer([{"type": "text"}])), "sent no chat completion"),
    ],
)
async def test_a_wrong_answer_fails_the_rollout(reply, message):
    """Error, redirect and other JSON are failures of this rollout, with what was seen."""

    async def wrong(server: AgentServer, request: SeenRequest) -> object:
        await toolkit(server, request)
        return reply

    async with service(wrong) as played:
        rollout = await played()
    assert message in rollout.error.message
    assert len(played.server.requests) == 1, "the key was passed on to a redirect's target"


async def test_a_late_answer_fails_the_rollout():
    """`timeout` limits one request."""

    async def never(_: AgentServer, __: SeenRequest) -> object:
        await asyncio.sleep(60)

    assert "no answer within 0.2 s" in await failure(never, timeout=0.2)


async def test_a_missing_service_is_an_error_before_the_first_rollout():
    """The error names the URL, and the base URL that the service's model needs."""
    with refused_port() as port:
        url = f"http://127.0.0.1:{port}{CHAT}"
        with pytest.raises(BackendUnreachable, match=rf"no service answers at {url}[\s\S]*http://127.0.0.1:\d+/v1 as"):
            async with service(url=url):
                pass


async def test_a_taken_port_is_a_configuration_error():
    """The error names the option of the YAML."""
    async with AgentServer(toolkit) as other:
        with pytest.raises(ConfigError, match=rf"workflow.gateway_port: cannot listen on port {other.port}"):
            async with service(gateway_port=other.port):
                pass
