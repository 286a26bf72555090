import asyncio
import json
from contextlib import closing

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_tracer_provider

from fakes.llm_steps import call, steps, user
from fakes.made_spans import ended, root
from fakes.otlp_server import OtlpServer
from nat.errors import BackendError
from nat.telemetry.otlp import LangfuseExporter, OtlpExporter, readable
from nat.telemetry.rollout_spans import Evaluation, inner_spans, rollout_span


def test_opentelemetry_s_own_exporters_take_the_spans():
    """They are of the SDK's kind, with ids, parents, times and status; the process's provider stays as it is."""
    before = get_tracer_provider()
    memory = InMemorySpanExporter()
    whole = rollout_span(ended(error="broken"), {}, [Evaluation("reward", 1)])
    memory.export(readable([*inner_spans(ended(), steps(call([user("q")], "a"))), whole], {"service.name": "p"}))
    chat, workflow = memory.get_finished_spans()
    assert chat.parent.span_id == workflow.context.span_id
    assert chat.context.trace_id == workflow.context.trace_id == 7
    assert (chat.kind.name, workflow.kind.name) == ("CLIENT", "INTERNAL")
    assert (workflow.status.status_code, workflow.status.description) == (StatusCode.ERROR, "broken")
    assert workflow.end_time - workflow.start_time == 1_000_000_000
    assert workflow.resource.attributes["service.name"] == "p"
    assert workflow.events[0].attributes["gen_ai.evaluation.score.value"] == 1.0
    assert json.loads(chat.to_json())["attributes"]["gen_ai.request.model"] == "tiny"
    assert get_tracer_provider() is before


async def sent(server: OtlpServer, spans, **options) -> int:
    given = {"headers": {"x-key": "k"}, "resource": {"service.name": "p"}, **options}
    with closing(OtlpExporter(server.endpoint, **given)) as exporter:
        return await asyncio.to_thread(exporter.send, spans)


async def test_spans_arrive_as_protobuf():
    """With the headers, the resource, and every kind of attribute."""
    async with OtlpServer() as server:
        made = [*inner_spans(ended(), steps(call([user("q")], "a"))), root(1, flag=True)]
        assert await sent(server, made) == 0
    chat, whole = server.spans
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/traces")
    assert (request.headers["content-type"], request.headers["x-key"]) == ("application/x-protobuf", "k")
    assert chat.resource == {"service.name": "p"}
    assert chat.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert chat.attributes["gen_ai.request.temperature"] == 1.0
    assert whole.attributes["flag"] is True
    assert whole.trace == (1001).to_bytes(16)


async def test_refused_spans_are_counted():
    """OTLP's partial success."""
    async with OtlpServer(refused=2) as server:
        assert await sent(server, [root(n) for n in range(3)]) == 2


async def test_an_error_says_what_the_server_said():
    """Status and text; the address may have no route for traces, or want a key."""
    async with OtlpServer([401]) as server:
        with pytest.raises(BackendError, match=r"/v1/traces answered with status 401: .*not now"):
            await sent(server, [root(1)])


async def test_content_stays_here_if_it_is_to():
    """Without content, nothing that was said leaves the process."""
    async with OtlpServer() as server:
        await sent(server, inner_spans(ended(), steps(call([user("private")], "private"))), content=False)
    assert b"private" not in server.requests[0].raw
    assert server.named("chat tiny")


async def test_langfuse_gets_each_score_beside_the_spans():
    """Scores go to their own route, with the trace's id; sent again they have the same ids."""
    why = {"because": "right"}
    async with OtlpServer() as server:
        endpoint = f"{server.base_url}/api/public/otel/v1/traces"
        spans = [root(1, Evaluation("reward", 0.5, why), Evaluation("tone", "polite"))]
        with closing(LangfuseExporter(endpoint, headers={}, resource={})) as langfuse:
            for _ in range(2):
                await asyncio.to_thread(langfuse.send, spans)
    assert [request.path for request in server.requests[:2]] == ["/api/public/otel/v1/traces", "/api/public/scores"]
    first, second = server.scores
    trace = f"{1001:032x}"
    known = {"traceId": trace, "name": "reward", "value": 0.5, "dataType": "NUMERIC", "comment": '{"because":"right"}'}
    assert {name: value for name, value in first.items() if name != "id"} == known
    assert first["id"] == second["id"]


def test_a_server_of_another_kind_is_no_failure():
    """An answer that is no protobuf, such as JSON, says nothing of refused spans."""
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, json={"ok": True}))
    sender = OtlpExporter("http://x/v1/traces", headers={}, resource={}, transport=transport)
    assert sender.send([root(1)]) == 0
    sender.close()
