"""A workflow behind a URL, played as if it were here.

Any server with the toolkit's `/generate/full` can be evaluated. Only `nat serve` of this package sends whole steps
(function, log probabilities, token ids), so only that can be trained.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import httpx
from pydantic_core import to_jsonable_python

from nat.builder.context import Context
from nat.capture.policy import CapturePolicy, RolloutCapture, current_capture
from nat.capture.redirect import current_redirects
from nat.errors import BackendUnreachable, WorkflowError, describe_error
from nat.rollout.remote_answer import RemoteAnswer, RemoteFailure, check_redirected
from nat.rollout.step_lines import StepDecoder
from nat.secrets import excerpt
from nat.wire.rollout import (
    KEY_VARIABLE,
    PROTOCOL_VERSION,
    ROLLOUT_HEADER,
    PlayFailure,
    RolloutWishes,
    SentRedirect,
)

ENDPOINT_TIMEOUT = "--endpoint_timeout"
_CONNECT_SECONDS = 10.0
_SHOWN_CHARS = 300
_CONNECTIONS = httpx.Limits(max_connections=1000, max_keepalive_connections=200, keepalive_expiry=2.0)
"""As many as a whole epoch may have in flight; none is kept so long that the server may close it first."""


class RemoteWorkflow:
    """One workflow at one URL; `ainvoke` publishes its steps into the rollout that is current."""

    def __init__(self, endpoint: str, http: httpx.AsyncClient, *, trains: bool) -> None:
        """`trains` wants whole steps."""
        self.endpoint = endpoint
        self._http = http
        self._trains = trains

    async def check(self) -> None:
        """Raise unless the server answers, takes the key and, for training, sends whole steps.

        Raises:
            BackendUnreachable: it does not answer, or not well.
            WorkflowError: it cannot be trained.

        """
        try:
            answer = await self._http.get(f"{self.endpoint}/health", timeout=_CONNECT_SECONDS)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BackendUnreachable(
                f"no served workflow answers at {self.endpoint}: {describe_error(error)}",
                hint="start it with `nat serve --config_file … --port …`, or correct --endpoint",
            ) from error
        known = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}  # servers without that route
        if answer.is_error and answer.status_code not in known:
            raise BackendUnreachable(
                f"{self.endpoint}/health answers {_status(answer)}",
                hint=f"the key is read from {KEY_VARIABLE}; set it to the key that `nat serve` was started with"
                if answer.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
                else "look into the log of the server",
            )
        if self._trains:
            self._check_whole(answer)

    async def ainvoke(self, value: Any) -> Any:
        """The result of one rollout there.

        Raises:
            RemoteFailure: there is none; or it cannot be trained on as asked.

        """
        capture = current_capture() or RolloutCapture(CapturePolicy())
        wishes = _wishes(capture.policy)
        answer = RemoteAnswer(self.endpoint, StepDecoder(capture.interner))
        request = self._http.build_request(
            "POST",
            f"{self.endpoint}/generate/full",
            json={"input_message": to_jsonable_python(value)},
            headers={ROLLOUT_HEADER: wishes.header(), "Accept": "text/event-stream"},
        )
        try:
            response = await self._http.send(request, stream=True)
            try:
                if response.is_error:
                    await response.aread()
                    raise RemoteFailure(_refusal(self.endpoint, response))
                if self._trains:
                    self._check_whole(response)
                await answer.read(response)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise RemoteFailure(f"{self.endpoint}: {describe_error(error)}") from error
        check_redirected(self.endpoint, answer.calls, wishes.redirects)
        return answer.result()

    def _check_whole(self, answer: httpx.Response) -> None:
        version = answer.headers.get(ROLLOUT_HEADER)
        if version != PROTOCOL_VERSION:
            seen = f"speaks version {version} of the protocol" if version else "sends no log probabilities and no ids"
            raise WorkflowError(
                f"the server at {self.endpoint} {seen}, so what is sampled there cannot be trained on; "
                f"wanted is {ROLLOUT_HEADER}: {PROTOCOL_VERSION} in its answers",
                hint="serve the workflow with `nat serve` of this package in this version; "
                "other servers can be evaluated with `nat eval --endpoint`",
            )


@asynccontextmanager
async def open_remote(
    endpoint: str, *, trains: bool, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[RemoteWorkflow]:
    """A served workflow that answers; see `RemoteWorkflow.check` for what is raised otherwise."""
    key = os.environ.get(KEY_VARIABLE)
    async with httpx.AsyncClient(
        transport=transport,
        limits=_CONNECTIONS,
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),  # the rollout's own deadline ends it
    ) as http:
        workflow = RemoteWorkflow(endpoint.rstrip("/"), http, trains=trains)
        await workflow.check()
        yield workflow


def _wishes(policy: CapturePolicy) -> RolloutWishes:
    """What the current rollout would have in this process."""
    context, redirects = Context.get(), current_redirects()
    item_id, _, generation = (context.workflow_run_id or "#0").rpartition("#")
    return RolloutWishes(
        item_id=item_id,
        generation=int(generation),
        seed=context.rollout_seed,
        call_seed=policy.seed,
        logprobs=policy.logprobs,
        token_ids=policy.token_ids,
        temperature=policy.replaced and policy.replaced.temperature,
        target_model=policy.replaced and policy.replaced.model,
        redirects=[
            SentRedirect(host=server.host, port=server.port, asked=asked, to=to)
            for server, asked, to in (redirects.entries() if redirects is not None else ())
        ],
    )


def _refusal(endpoint: str, response: httpx.Response) -> str:
    try:
        failure = PlayFailure.model_validate(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"{endpoint}/generate/full answers {_status(response)}"
    return f"{endpoint}/generate/full answers {response.status_code}: {failure.type}: {failure.message}"


def _status(response: httpx.Response) -> str:
    return f"{response.status_code}: {excerpt(response.text, _SHOWN_CHARS)}"
