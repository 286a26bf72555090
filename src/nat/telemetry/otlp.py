"""Send spans by OTLP over HTTP, encoded by OpenTelemetry's own library; for Langfuse, scores as well.

OpenTelemetry's exporter is not used, because it follows proxies of the environment; ours is a client like all others.
Import this module only where the extra `telemetry` is installed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from nat.errors import BackendError
from nat.http.client import DirectClient
from nat.secrets import excerpt
from nat.telemetry import names
from nat.telemetry.span import Span

_SCOPE = "nat"
_ERROR_CHARS = 200
_MOST_ANSWERED = 2**20


class OtlpExporter:
    """One address, with its headers and what its resource is called."""

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str],
        resource: Mapping[str, str],
        timeout: float = 10.0,
        content: bool = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`timeout` is in seconds; without `content`, messages, inputs and outputs stay here."""
        self._endpoint = endpoint
        self._resource = dict(resource)
        self._content = content
        self._client = DirectClient(headers=dict(headers), timeout=timeout, transport=transport, most=_MOST_ANSWERED)

    def send(self, spans: list[Span]) -> int:
        """Send the spans in one request, and return how many of them were refused.

        Raises:
            BackendError: the server answers with an error.
            httpx.HTTPError: it does not answer.

        """
        sent = spans if self._content else [span.without_content() for span in spans]
        body = encode_spans(readable(sent, self._resource)).SerializeToString()
        answer = self._post(self._endpoint, content=body, headers={"Content-Type": "application/x-protobuf"})
        if "protobuf" not in answer.headers.get("Content-Type", ""):
            return 0
        refused: int = ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans
        return refused

    def close(self) -> None:
        self._client.close()

    def _post(self, url: str, **request: Any) -> httpx.Response:
        response = self._client.post(url, **request)
        if not response.is_success:
            said = excerpt(response.text, _ERROR_CHARS)
            raise BackendError(f"{url} answered with status {response.status_code}: {said}")
        return response


class LangfuseExporter(OtlpExporter):
    """Langfuse takes scores at a route of their own, one by one, with the id of the trace."""

    def __init__(self, endpoint: str, **options: Any) -> None:
        super().__init__(endpoint, **options)
        self._scores = f"{endpoint.partition('/api/public/')[0]}/api/public/scores"

    def send(self, spans: list[Span]) -> int:
        refused = super().send(spans)
        for span in spans:
            for score in _scores_of(span):
                self._post(self._scores, json=[score])
        return refused


def _scores_of(span: Span) -> list[dict[str, Any]]:
    """The evaluations of a span; equal ids, so that one that is sent again replaces itself."""
    trace, found = f"{span.trace_id:032x}", []
    for number, event in enumerate(span.events):
        score = event.attributes.get(names.EVALUATION_SCORE)
        if score is None:
            continue
        why = event.attributes.get(names.EVALUATION_WHY)
        known = {"id": f"{trace}-{number}", "traceId": trace, "name": event.attributes[names.EVALUATION_NAME]}
        found.append({**known, "value": score, "dataType": "NUMERIC"} | ({} if why is None else {"comment": why}))
    return found


def readable(spans: Sequence[Span], resource: Mapping[str, str]) -> list[ReadableSpan]:
    """The spans as OpenTelemetry's SDK has them; no provider is made or set."""
    shared, scope = Resource(dict(resource)), InstrumentationScope(_SCOPE)

    def place(span: Span, span_id: int) -> SpanContext:
        return SpanContext(span.trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return [
        ReadableSpan(
            span.name,
            context=place(span, span.span_id),
            parent=None if span.parent_id is None else place(span, span.parent_id),
            resource=shared,
            attributes=span.attributes,
            events=[Event(event.name, event.attributes, event.at) for event in span.events],
            kind=SpanKind.CLIENT if span.remote else SpanKind.INTERNAL,
            instrumentation_scope=scope,
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.started,
            end_time=span.ended,
        )
        for span in spans
    ]
