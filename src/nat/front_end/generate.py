"""The toolkit's own routes: one result, the pieces of a result, or the result with all steps that led to it."""

from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nat.data_models.intermediate_step import IntermediateStep
from nat.front_end.errors import bad_request, from_failure
from nat.front_end.exchange import Emit, Stream, while_waited_for
from nat.front_end.guard import read_body
from nat.front_end.inputs import rollout_input, workflow_input
from nat.front_end.outputs import data_line, exactly, wrapped
from nat.front_end.served import ServedWorkflow
from nat.rollout.rollout import Rollout
from nat.rollout.step_lines import StepEncoder, plain_line
from nat.wire.rollout import PROTOCOL_VERSION, ROLLOUT_HEADER, RolloutOptions


class GenerateRoutes:
    """Handlers of `/generate…`."""

    def __init__(self, served: ServedWorkflow) -> None:
        self._served = served

    async def generate(self, request: Request) -> Response:
        """The workflow's output: an object as it is, anything else as `{"value": …}`."""
        value = workflow_input(await read_body(request), self._served.function)
        rollout = await while_waited_for(request, self._served.play(value))
        if rollout.error is not None:
            raise from_failure(rollout.error)
        return JSONResponse(wrapped(rollout.output))

    async def stream(self, request: Request) -> Response:
        """The workflow's output piece by piece, each as a line `data: …`; an error is `data: {"error": …}`."""
        value = workflow_input(await read_body(request), self._served.function)

        async def work(emit: Emit) -> None:
            rollout = await self._served.play(value, on_chunk=lambda piece: emit(data_line(wrapped(piece))))
            if rollout.error is not None:
                emit(data_line(from_failure(rollout.error).body()))

        return Stream(work, bytes)

    async def full(self, request: Request) -> Response:
        """A line `intermediate_data: …` for each step, then `data: …` with the output, or with `{"error": …}`."""
        wishes = _wishes(request)
        body = await read_body(request)
        value = workflow_input(body, self._served.function) if wishes is None else rollout_input(body)
        encoder = StepEncoder() if wishes is not None else None

        def encode(item: IntermediateStep | Rollout) -> bytes:
            if isinstance(item, Rollout):
                rest = b"" if encoder is None else encoder.rest()
                return rest + data_line(_result(item, exact=encoder is not None))
            return plain_line(item) if encoder is None else encoder.encode(item)

        async def work(emit: Emit) -> None:
            emit(await self._served.play(value, wishes, on_step=emit))

        return Stream(work, encode, headers={} if wishes is None else {ROLLOUT_HEADER: PROTOCOL_VERSION})


def _wishes(request: Request) -> RolloutOptions | None:
    text = request.headers.get(ROLLOUT_HEADER)
    if text is None:
        return None
    try:
        return RolloutOptions.from_header(text)
    except ValidationError as error:
        raise bad_request(f"{ROLLOUT_HEADER}: {error.errors(include_url=False)[0]['msg']}") from error


def _result(rollout: Rollout, *, exact: bool) -> dict[str, Any]:
    if rollout.error is not None:
        return from_failure(rollout.error).body()
    return {"value": exactly(rollout.output)} if exact else wrapped(rollout.output)
