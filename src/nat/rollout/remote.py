"""A workflow behind a URL, run as if it were in this process.

Any server with the toolkit's `/generate/full` can be evaluated. Training needs whole steps (function, log
probabilities, token ids), which only `nat serve` of this package sends.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import httpx
from pydantic_core import from_json, to_jsonable_python

from nat.builder.context import Context
from nat.capture.context import CapturePolicy, RolloutCapture, capture_context
from nat.data_models.llm_call import LLMCall
from nat.errors import BackendUnreachable, WorkflowError, describe_error
from nat.http.client import async_client, bearer
from nat.rollout.step_lines import decoded
from nat.secrets import excerpt
from nat.wire.openai_api import ErrorDetail
from nat.wire.rollout import (
    DATA,
    KEY_VARIABLE,
    PROTOCOL_VERSION,
    ROLLOUT_HEADER,
    STEP,
    ModelRedirect,
    RolloutOptions,
)

ENDPOINT_TIMEOUT = "--endpoint_timeout"
_CONNECT_SECONDS = 10.0
_CONNECTIONS = httpx.Limits(max_connections=1000, max_keepalive_connections=200, keepalive_expiry=2.0)
"""Enough for all rollouts of an epoch at once; idle connections are closed before the server closes them."""
_EXCERPT_CHARS = 300


class RemoteFailure(Exception):
    """The served workflow returned no result; the message is the server's reason."""


class RemoteWorkflow:
    """One workflow at one URL; `ainvoke` publishes its steps into the rollout that is current."""

    def __init__(self, endpoint: str, http: httpx.AsyncClient, *, trains: bool, timeout: float) -> None:
        """With `trains`, the server must send whole steps; `timeout` is the limit of a rollout in seconds."""
        self.endpoint = endpoint
        self.timeout = timeout
        self._http = http
        self._trains = trains

    async def check(self) -> None:
        """Raise unless the server answers, takes the key and, for training, sends whole steps.

        Raises:
            BackendUnreachable: it does not answer, or answers with an error.
            WorkflowError: it cannot be trained.

        """
        try:
            async with (
                asyncio.timeout(_CONNECT_SECONDS),
                self._http.stream("GET", f"{self.endpoint}/health") as answer,
            ):
                await answer.aread()
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise BackendUnreachable(
                f"no served workflow answers at {self.endpoint}: {describe_error(error)}",
                hint="start it with `nat serve --config_file … --port …`, or correct --endpoint",
            ) from error
        known = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}  # servers without that route
        if not answer.is_success and answer.status_code not in known:
            raise BackendUnreachable(
                f"{self.endpoint}/health answers {_status(answer)}",
                hint=f"the key is read from {KEY_VARIABLE}; set it to the key that `nat serve` was started with"
                if answer.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
                else "read the server's log",
            )
        if self._trains:
            self._check_whole(answer)

    async def ainvoke(self, value: Any) -> Any:
        """The result of one rollout on the server.

        Raises:
            RemoteFailure: there is no result, or it cannot be used for training.

        """
        capture = capture_context().rollout or RolloutCapture(CapturePolicy())
        context = Context.get()
        item_id, _, generation = (context.workflow_run_id or "#0").rpartition("#")
        options = rollout_options(
            capture.policy, item_id=item_id, generation=int(generation), seed=context.rollout_seed
        )
        try:
            response = await self._http.post(
                f"{self.endpoint}/generate/full",
                json={"input_message": to_jsonable_python(value)},
                headers={ROLLOUT_HEADER: options.header(), "Accept": "text/event-stream"},
            )
        except httpx.HTTPError as error:
            raise RemoteFailure(f"{self.endpoint}: {describe_error(error)}") from error
        if not response.is_success:
            try:
                failure = ErrorDetail.model_validate(from_json(response.content)["error"])
                told = f"{response.status_code}: {failure.type}: {failure.message}"
            except (ValueError, KeyError, TypeError):
                told = _status(response)
            raise RemoteFailure(f"{self.endpoint}/generate/full answers {told}")
        if self._trains:
            self._check_whole(response)
        # Only a line feed ends a line: JSON may contain other Unicode line separators.
        lines = [line.removesuffix(b"\r") for line in response.content.split(b"\n")]
        try:
            steps = decoded([line.removeprefix(STEP) for line in lines if line.startswith(STEP)], capture.interner)
        except (ValueError, KeyError, TypeError) as error:
            raise RemoteFailure(f"{self.endpoint} sent an invalid step: {describe_error(error)}") from error
        for step in steps:
            context.intermediate_step_manager.publish(step)
        output = self._output(
            [line for line in lines if line.startswith(DATA)], whole=ROLLOUT_HEADER in response.headers
        )
        check_redirected(self.endpoint, [step.llm_call for step in steps if step.llm_call], options.redirects)
        return output

    def _output(self, lines: Sequence[bytes], *, whole: bool) -> Any:
        """The last result in the lines; RemoteFailure if there is none."""
        found: list[Any] = []
        for content in (line.removeprefix(DATA) for line in lines if line != DATA + b"[DONE]"):
            try:
                data = from_json(content)
            except ValueError as error:
                seen = excerpt(repr(content), _EXCERPT_CHARS)
                raise RemoteFailure(f"{self.endpoint} sent data that is not JSON: {seen}") from error
            if isinstance(data, dict) and isinstance(told := data.get("error"), dict):
                failure = ErrorDetail.model_validate({"type": "Error", "message": str(told), **told})
                raise RemoteFailure(f"{failure.type}: {failure.message} (in the workflow at {self.endpoint})")
            wrapped = isinstance(data, dict) and "value" in data and (whole or len(data) == 1)
            found.append(data["value"] if wrapped else data)
        if not found:
            raise RemoteFailure(f"{self.endpoint}: the answer ended without a result")
        return found[-1]

    def _check_whole(self, answer: httpx.Response) -> None:
        version = answer.headers.get(ROLLOUT_HEADER)
        if version != PROTOCOL_VERSION:
            seen = (
                f"speaks version {version} of the protocol"
                if version
                else "sends no log probabilities and no token ids"
            )
            raise WorkflowError(
                f"the server at {self.endpoint} {seen}, so its answers cannot be used for training; "
                f"expected the header {ROLLOUT_HEADER}: {PROTOCOL_VERSION}",
                hint="serve the workflow with `nat serve` of this package in this version; "
                "other servers can be evaluated with `nat eval --endpoint`",
            )


@asynccontextmanager
async def open_remote(
    endpoint: str, *, trains: bool, rollout_timeout: float = 300, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[RemoteWorkflow]:
    """Connect to a served workflow and check it; `RemoteWorkflow.check` lists the errors."""
    key = os.environ.get(KEY_VARIABLE)
    async with async_client(
        transport=transport,
        limits=_CONNECTIONS,
        headers=bearer(key),
        timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),  # the rollout's own deadline ends it
    ) as http:
        workflow = RemoteWorkflow(endpoint.rstrip("/"), http, trains=trains, timeout=rollout_timeout)
        await workflow.check()
        yield workflow


def check_redirected(endpoint: str, calls: Sequence[LLMCall], redirects: Sequence[ModelRedirect]) -> None:
    """Raise if the agent called the trained model's starting point and not the trained model itself."""
    served = {redirect.served_model for redirect in redirects}
    started = {redirect.requested_model for redirect in redirects} - served
    frozen = {llm for redirect in redirects for llm in redirect.frozen_llms}
    strays = [call for call in calls if call.model in started and call.llm_name not in frozen]
    if not strays or any(call.model in served for call in calls):
        return
    [where, *_] = (f"{r.host}:{r.port}" for r in redirects if r.requested_model == strays[0].model)
    llm = f"llms.{strays[0].llm_name}" if strays[0].llm_name else "its LLM"
    raise RemoteFailure(
        f"the workflow at {endpoint} called {strays[0].model}, not the trained model: in the YAML that is "
        f"served there, {llm} needs model_name {' or '.join(sorted(served))}, or a base_url at {where}"
    )


def rollout_options(policy: CapturePolicy, *, item_id: str, generation: int, seed: int | None) -> RolloutOptions:
    """The options that a rollout has in this process, for another one."""
    redirects = capture_context().redirects
    return RolloutOptions(
        item_id=item_id,
        generation=generation,
        seed=seed,
        call_seed=policy.seed,
        logprobs=policy.logprobs,
        token_ids=policy.token_ids,
        temperature=policy.replaced and policy.replaced.temperature,
        target_model=policy.replaced and policy.replaced.model,
        redirects=[] if redirects is None else redirects.entries(),
    )


def _status(response: httpx.Response) -> str:
    return f"{response.status_code}: {excerpt(response.content.decode(errors='replace'), _EXCERPT_CHARS)}"
