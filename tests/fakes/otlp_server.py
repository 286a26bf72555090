"""A server that takes OTLP over HTTP, reads the protobuf, and keeps the spans.

async with OtlpServer() as server:
    ... # exporters send to server.endpoint
    assert server.named("chat tiny")
"""

import asyncio
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from fakes.http_server import HttpServer, SeenRequest, write_body, write_json


@dataclass(frozen=True)
class SeenSpan:
    """One span as it arrived."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    attributes: dict[str, Any]
    error: str | None
    seconds: float
    kind: int
    resource: dict[str, Any]


class OtlpServer(HttpServer):
    """Answers with `statuses` in order, then with 200."""

    def __init__(self, statuses: Sequence[int] = (), *, delay: float = 0.0) -> None:
        super().__init__()
        self.spans: list[SeenSpan] = []
        self.requests: list[SeenRequest] = []
        self._statuses = list(statuses)
        self._delay = delay
        self._arrived = asyncio.Condition()

    @property
    def endpoint(self) -> str:
        return f"{self.base_url}/v1/traces"

    @property
    def roots(self) -> list[SeenSpan]:
        return [span for span in self.spans if not span.parent]

    def named(self, name: str) -> list[SeenSpan]:
        return [span for span in self.spans if span.name == name]

    async def seen(self, name: str, count: int) -> None:
        """Wait until so many spans of this name have arrived."""
        async with asyncio.timeout(30), self._arrived:
            await self._arrived.wait_for(lambda: len(self.named(name)) >= count)

    async def answer(self, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self.requests.append(request)
        await asyncio.sleep(self._delay)
        if self._statuses and (status := self._statuses.pop(0)) != 200:
            write_json(writer, status, {"error": "not now"})
        else:
            async with self._arrived:
                packed = request.headers.get("content-encoding") == "gzip"
                self.spans += _spans_in(gzip.decompress(request.raw) if packed else request.raw)
                self._arrived.notify_all()
            answer = ExportTraceServiceResponse().SerializeToString()
            write_body(writer, answer, {"content-type": "application/x-protobuf"})
        return True


def _spans_in(raw: bytes) -> list[SeenSpan]:
    sent = ExportTraceServiceRequest.FromString(raw)
    return [
        SeenSpan(
            name=span.name,
            trace=span.trace_id,
            id=span.span_id,
            parent=span.parent_span_id,
            attributes=_attributes(span.attributes),
            error=span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else None,
            seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
            kind=span.kind,
            resource=_attributes(of_resource.resource.attributes),
        )
        for of_resource in sent.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)
