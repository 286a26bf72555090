"""The routes of `nat gateway serve`: its own key opens and closes rollouts, and their keys open the model.

POST   /rollouts        a new rollout and its key
GET    /rollouts        the ids of those that are open
GET    /rollouts/{id}   the steps until now
DELETE /rollouts/{id}   the same, and the end of it
"""

import hmac

from pydantic import ValidationError

from nat.gateway.app import GatewayApp, key_of
from nat.gateway.asgi import ClientGone, Receive, Scope, Send, Sender, header, read_body
from nat.gateway.dialects import chat
from nat.gateway.limits import Limits
from nat.gateway.refusal import Refusal
from nat.gateway.rollouts import Rollouts, RolloutWanted

ROLLOUTS = "/rollouts"
STEP_LINES = "text/event-stream"


class RolloutRoutes:
    """The ASGI application: rollouts here, all else to the gateway."""

    def __init__(self, gateway: GatewayApp, rollouts: Rollouts, *, api_key: str, limits: Limits | None = None) -> None:
        self._gateway = gateway
        self._rollouts = rollouts
        self._key = api_key.encode()
        self._limits = limits or Limits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, sender = scope["path"], Sender(send)
        if path != ROLLOUTS and not path.startswith(f"{ROLLOUTS}/"):
            await self._gateway(scope, receive, send)
            return
        try:
            await self._answer(scope, receive, sender)
        except ClientGone:
            return
        except Refusal as refusal:
            await sender.json(*chat.error(refusal.status, refusal.message))

    async def _answer(self, scope: Scope, receive: Receive, sender: Sender) -> None:
        if not hmac.compare_digest(key_of(scope), self._key):
            raise Refusal(401, "rollouts are opened and closed with the key of this gateway")
        method, name = scope["method"], scope["path"].removeprefix(ROLLOUTS).removeprefix("/")
        match method, name:
            case "POST", "":
                wanted = _wanted(await read_body(scope, receive, self._limits))
                url = f"{scope['scheme']}://{header(scope, b'host').decode('latin-1')}"
                await sender.json(201, await self._rollouts.open(wanted, url=url))
            case "GET", "":
                await sender.json(200, {"rollouts": self._rollouts.ids})
            case "GET", _:
                await sender.whole(200, self._rollouts.lines(name), STEP_LINES)
            case "DELETE", _ if name:
                await sender.whole(200, await self._rollouts.close(name), STEP_LINES)
            case _:
                raise Refusal(405, f"{method} {scope['path']}: rollouts are opened with POST {ROLLOUTS}")


def _wanted(body: bytes) -> RolloutWanted:
    try:
        return RolloutWanted.model_validate_json(body or b"{}")
    except ValidationError as error:
        findings = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}".removeprefix(": ") for e in error.errors())
        raise Refusal(400, "; ".join(findings)) from error
