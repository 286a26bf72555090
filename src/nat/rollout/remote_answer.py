"""What a served workflow answers to a rollout: steps as they come, then a result or the reason for none."""

from collections.abc import Sequence
from typing import Any

import httpx
from pydantic import ValidationError
from pydantic_core import from_json

from nat.builder.context import Context
from nat.data_models.intermediate_step import TraceMetadata
from nat.data_models.llm_call import LLMCall
from nat.errors import describe_error
from nat.rollout.step_lines import StepDecoder
from nat.secrets import excerpt
from nat.wire.rollout import DATA, ROLLOUT_HEADER, STEP, PlayFailure, SentRedirect

_SHOWN_CHARS = 300


class RemoteFailure(Exception):
    """The served workflow gave no result; the message says why, in the words of the side that knows."""


class RemoteAnswer:
    """Reads the lines of one answer."""

    def __init__(self, endpoint: str, decoder: StepDecoder) -> None:
        self.calls: list[LLMCall] = []
        self._endpoint = endpoint
        self._decoder = decoder
        self._publish = Context.get().intermediate_step_manager.publish
        self._results: list[Any] = []
        self._failure: PlayFailure | None = None

    async def read(self, response: httpx.Response) -> None:
        """All lines. They end with a line feed and nothing else: JSON may hold what Unicode calls a line's end."""
        whole = response.headers.get(ROLLOUT_HEADER) is not None
        rest = b""
        async for chunk in response.aiter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(line.rstrip(b"\r"), whole=whole)
        self._take(rest, whole=whole)

    def result(self) -> Any:
        """The last one; RemoteFailure if there is none."""
        if self._failure is not None:
            raise RemoteFailure(f"{self._failure.type}: {self._failure.message} (in the workflow at {self._endpoint})")
        if not self._results:
            raise RemoteFailure(f"{self._endpoint}: the answer ended without a result")
        return self._results[-1]

    def _take(self, line: bytes, *, whole: bool) -> None:
        if line.startswith(STEP):
            self._take_step(line.removeprefix(STEP))
        elif line.startswith(DATA) and line != DATA + b"[DONE]":
            self._take_data(line.removeprefix(DATA), whole=whole)

    def _take_step(self, content: bytes) -> None:
        try:
            step = self._decoder.decode(content)
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            raise RemoteFailure(f"{self._endpoint} sent a step that is none: {describe_error(error)}") from error
        if isinstance(step.metadata, TraceMetadata) and step.metadata.llm_call is not None:
            self.calls.append(step.metadata.llm_call)
        self._publish(step)

    def _take_data(self, content: bytes, *, whole: bool) -> None:
        try:
            data = from_json(content)
        except ValueError as error:
            raise RemoteFailure(
                f"{self._endpoint} sent data that is no JSON: {excerpt(repr(content), _SHOWN_CHARS)}"
            ) from error
        failure = data.get("error") if isinstance(data, dict) else None
        if isinstance(failure, dict):
            self._failure = PlayFailure.model_validate({"type": "Error", "message": str(failure), **failure})
        elif isinstance(data, dict) and "value" in data and (whole or len(data) == 1):
            self._results.append(data["value"])
        else:
            self._results.append(data)


def check_redirected(endpoint: str, calls: Sequence[LLMCall], redirects: Sequence[SentRedirect]) -> None:
    """Raise if the agent asked for the model that is trained, and got the one that training began with."""
    served = {redirect.to for redirect in redirects}
    started = {redirect.asked for redirect in redirects} - served
    strays = [call for call in calls if call.model in started]
    if not strays or any(call.model in served for call in calls):
        return
    [where, *_] = (f"{r.host}:{r.port}" for r in redirects if r.asked == strays[0].model)
    llm = f"llms.{strays[0].llm_name}" if strays[0].llm_name else "its LLM"
    raise RemoteFailure(
        f"the workflow at {endpoint} sampled {strays[0].model}, not the model that is trained: in the YAML that is "
        f"served there, {llm} needs model_name {' or '.join(sorted(served))}, or a base_url at {where}"
    )
