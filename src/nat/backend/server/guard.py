"""The doors of the server: a bearer key on every request, and a limit on the size of every body."""

import hmac

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nat.backend.server.errors import ApiError


class BearerKey:
    """Let through only requests with the key; compares in constant time."""

    def __init__(self, app: ASGIApp, *, api_key: str) -> None:
        if not api_key:
            raise ValueError("the server needs an API key")
        self._app = app
        self._expected = f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(given, self._expected):
                seen = "another key" if given else "no Authorization header"
                error = ApiError(f"this server needs its API key as a bearer token; got {seen}", status=401)
                error.code = "invalid_api_key"
                await error.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


class BodyLimit:
    """Refuse bodies that are larger than the limit, by their announced or by their real size."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not announced.isdigit() or int(announced) > self._max_bytes:
            await self._error().response()(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise self._error()
            return message

        await self._app(scope, counted, send)

    def _error(self) -> ApiError:
        return ApiError(f"the request's body is larger than {self._max_bytes} bytes", status=413)
