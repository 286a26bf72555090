"""The routes: every call needs the key of a rollout, and opens that rollout's model and nothing else."""

import asyncio
import logging
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from pydantic_core import from_json

from nat.gateway.access import RolloutAccess
from nat.gateway.asgi import ClientGone, Receive, Scope, Send, Sender, disconnected, header, read_body
from nat.gateway.call import Call, Route
from nat.gateway.dialects import Dialect, chat, completions, messages, responses
from nat.gateway.keys import Keyring
from nat.gateway.limits import Limits
from nat.gateway.refusal import Refusal
from nat.gateway.retries import RETRY_HEADER, Sent, fingerprint
from nat.secrets import excerpt
from nat.wire.json_bounds import check_request

logger = logging.getLogger(__name__)

ROUTES = {
    "/v1/chat/completions": Route(chat, "/chat/completions"),
    "/v1/completions": Route(completions, "/completions"),
    "/v1/responses": Route(responses, "/chat/completions"),
    "/v1/messages": Route(messages, "/chat/completions"),
}
MODELS = "/v1/models"
HEALTH = "/health"
_NO_ROLLOUT = "this is not the key of a rollout that runs: the key is wrong, or its rollout is over"


class GatewayApp:
    """The ASGI application."""

    def __init__(self, keyring: Keyring, limits: Limits | None = None) -> None:
        self._keyring = keyring
        self._limits = limits or Limits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender, dialect = Sender(send), _dialect(scope["path"])
        try:
            await self._answer(scope, receive, sender)
        except ClientGone:
            return
        except Refusal as refusal:
            if not sender.begun:
                await sender.json(*dialect.error(refusal.status, refusal.message))
        except Exception as error:
            logger.exception("the gateway failed at %s %s", scope["method"], scope["path"])
            if not sender.begun:
                await sender.json(*dialect.error(500, f"the gateway failed: {type(error).__name__}"))

    async def _answer(self, scope: Scope, receive: Receive, sender: Sender) -> None:
        method, path = scope["method"], scope["path"].rstrip("/")
        if (method, path) == ("GET", HEALTH):
            await sender.json(200, {"status": "healthy"})
            return
        access = self._access(scope)
        if method == "GET" and (path == MODELS or path.startswith(f"{MODELS}/")):
            await sender.json(200, _models(access, path))
        elif path in ROUTES and method == "POST":
            await self._call(access, path, scope, receive, sender)
        else:
            status = HTTPStatus.METHOD_NOT_ALLOWED if path in ROUTES else HTTPStatus.NOT_FOUND
            raise Refusal(status, f"{method} {path}: {status.phrase}; there are POST {', '.join(ROUTES)}")

    def _access(self, scope: Scope) -> RolloutAccess:
        access = self._keyring.find(key_of(scope))
        if access is None:
            raise Refusal(401, _NO_ROLLOUT)
        return access

    async def _call(self, access: RolloutAccess, path: str, scope: Scope, receive: Receive, sender: Sender) -> None:
        body = await read_body(scope, receive, self._limits)
        if access.closed:  # while the body was on its way
            raise Refusal(401, _NO_ROLLOUT)
        self._charge(access, len(body))
        asked = _parsed(body)
        request, retry = fingerprint(path, body), header(scope, RETRY_HEADER).lstrip(b"0") != b""
        sent = access.answers.again(request, retry=retry)
        if sent is not None:
            await sender.whole(200, sent.content, sent.content_type)
            return
        call = Call(ROUTES[path], asked, access.memory, access.upstream(asked.get("model")))
        recorded: list[Sent] = []
        answering = access.start(call.answer(sender, recorded.append))
        try:
            await _while_wanted(answering, receive)
        finally:
            access.answers.settle(request, *recorded)
            access.bytes_spent += sum(len(sent.content) for sent in recorded)

    def _charge(self, access: RolloutAccess, size: int) -> None:
        """Refusal if the rollout has had all that it may have; what it sends and gets is kept until it ends."""
        most = self._limits.rollout_bytes
        access.bytes_spent += size + self._limits.request_bytes
        if access.bytes_spent > most:
            raise Refusal(413, f"the requests of this rollout and their answers have more than {most} bytes")


async def _while_wanted(answering: asyncio.Task[None], receive: Receive) -> None:
    """Wait for an answer; end it when its client goes, or when this task ends. Refusal if its rollout ended it."""
    gone = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        left = not answering.done()
    finally:
        for task in (gone, answering):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await gone
        await asyncio.wait((answering,))
    if left:
        raise ClientGone
    if answering.cancelled():
        raise Refusal(401, _NO_ROLLOUT)
    answering.result()


def _models(access: RolloutAccess, path: str) -> dict[str, Any]:
    """The list, or one entry: whatever an agent calls its model, it is served."""
    if path == MODELS:
        return {"object": "list", "data": [_model(name) for name in access.models]}
    return _model(path.removeprefix(f"{MODELS}/"))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "nat"}


def key_of(scope: Scope) -> bytes:
    """As OpenAI's clients send it, or as Anthropic's do."""
    scheme, _, token = header(scope, b"authorization").partition(b" ")
    return token if scheme.lower() == b"bearer" else header(scope, b"x-api-key")


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        check_request(body)
    except ValueError as error:
        raise Refusal(413, str(error)) from error
    try:
        asked = from_json(body)
    except ValueError as error:
        raise Refusal(400, f"the body is no JSON: {error}") from error
    if not isinstance(asked, dict):
        raise Refusal(400, f"the body is no JSON object: {excerpt(repr(body), 100)}")
    return asked


def _dialect(path: str) -> Dialect:
    """In which errors of a path are told."""
    return next((route.dialect for known, route in ROUTES.items() if path.startswith(known)), chat)
