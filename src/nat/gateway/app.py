"""The gateway's routes: every call needs a rollout's key, and reaches only that rollout's models."""

import logging
from http import HTTPStatus

from nat.gateway.access import Keyring, RolloutAccess
from nat.gateway.call import GatewayCall, Route
from nat.gateway.dialects import Dialect, chat, messages, responses
from nat.gateway.retries import RETRY_HEADER, Sent, fingerprint
from nat.http.asgi import Receive, Scope, Send, Sender, cancel_on_disconnect, header, model_named, parse_json, read_body
from nat.http.errors import ApiError, ClientDisconnected
from nat.http.guards import bearer_token
from nat.secrets import excerpt

logger = logging.getLogger(__name__)

ROUTES = {
    "/v1/chat/completions": Route(chat, "/chat/completions"),
    "/v1/completions": Route(chat, "/completions"),
    "/v1/responses": Route(responses, "/chat/completions"),
    "/v1/messages": Route(messages, "/chat/completions"),
}
MODELS = "/v1/models"
HEALTH = "/health"
_KEY_HEADER = b"x-payload-nat-rollout-key"
"""The toolkit's `nat serve` sends unknown fields of its requests along in such headers of its calls to models."""
_NO_ROLLOUT = "this key belongs to no open rollout: the key is wrong, or its rollout is over"


class GatewayApp:
    """The ASGI application."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender, path = Sender(send), scope["path"]
        dialect: Dialect = next((route.dialect for known, route in ROUTES.items() if path.startswith(known)), chat)
        try:
            await self._answer(scope, receive, sender)
        except ClientDisconnected:
            return
        except ApiError as error:
            if not sender.begun:
                await sender.json(*dialect.error(error))
        except Exception as error:
            logger.exception("the gateway failed at %s %s", scope["method"], scope["path"])
            if not sender.begun:
                failure = ApiError(f"the gateway failed: {type(error).__name__}", status=500)
                await sender.json(*dialect.error(failure))

    async def _answer(self, scope: Scope, receive: Receive, sender: Sender) -> None:
        method, path = scope["method"], scope["path"].rstrip("/")
        if (method, path) == ("GET", HEALTH):
            await sender.json(200, {"status": "healthy"})
            return
        access = self._keyring.find(header(scope, _KEY_HEADER) or key_of(scope))
        if access is None:
            raise ApiError(_NO_ROLLOUT, status=401)
        if method == "GET" and (path == MODELS or path.startswith(f"{MODELS}/")):
            shown = [
                {"id": name, "object": "model", "created": 0, "owned_by": "nat"}
                for name in (access.models if path == MODELS else [path.removeprefix(f"{MODELS}/")])  # any is accepted
            ]
            await sender.json(200, {"object": "list", "data": shown} if path == MODELS else shown[0])
        elif path in ROUTES and method == "POST":
            await self._call(access, path, scope, receive, sender)
        else:
            status = HTTPStatus.METHOD_NOT_ALLOWED if path in ROUTES else HTTPStatus.NOT_FOUND
            raise ApiError(f"{method} {path}: {status.phrase}; there are POST {', '.join(ROUTES)}", status=status)

    async def _call(self, access: RolloutAccess, path: str, scope: Scope, receive: Receive, sender: Sender) -> None:
        body = await read_body(receive)
        if access.closed:  # ended while the body was read
            raise ApiError(_NO_ROLLOUT, status=401)
        access.used = True
        request = parse_json(body)
        if not isinstance(request, dict):
            raise ApiError(f"the body is not a JSON object: {excerpt(repr(body), 100)}")
        model = model_named(request)
        digest, retry = fingerprint(path, body), header(scope, RETRY_HEADER).lstrip(b"0") != b""
        sent = access.answers.again(digest, retry=retry)
        if sent is not None:
            await sender.whole(200, sent.content, sent.content_type)
            return
        upstream = access.upstream(model)
        call = GatewayCall(ROUTES[path], request, access.memory, upstream)
        recorded: list[Sent] = []
        answering = access.start(call.answer(sender, recorded.append))
        try:
            await cancel_on_disconnect(receive, answering)
        finally:
            access.answers.settle(digest, *recorded)
        if answering.cancelled():  # the rollout has ended
            raise ApiError(_NO_ROLLOUT, status=401)
        answering.result()


def key_of(scope: Scope) -> bytes:
    """The key from the header of OpenAI's or of Anthropic's clients."""
    token = bearer_token(scope)
    return header(scope, b"x-api-key") if token is None else token
