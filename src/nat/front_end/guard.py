"""What guards the server: the key, no web pages of others where there is none, and a limit on the size of a body."""

import hmac
from collections.abc import Collection
from urllib.parse import urlsplit

from pydantic_core import from_json
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from nat.asgi.head_check import Objection
from nat.front_end.errors import ServeError, bad_request
from nat.wire.hosts import is_loopback
from nat.wire.json_bounds import check_request
from nat.wire.rollout import KEY_VARIABLE

MAX_BODY_BYTES = 32 * 2**20


def needs_key(api_key: str) -> Objection:
    """Let through only requests with the key as a bearer token; compares in constant time."""
    expected = f"bearer {api_key}".encode()

    def objection(http: HTTPConnection) -> Response | None:
        header = http.headers.get("authorization", "")
        scheme, _, key = header.partition(" ")
        if hmac.compare_digest(f"{scheme.lower()} {key}".encode("latin-1"), expected):
            return None
        seen = "another one" if header else "none"
        message = f"this server needs its key as a bearer token, got {seen}; clients of ours read {KEY_VARIABLE}"
        return ServeError(message, status=401, type="authentication_error").response()

    return objection


def no_web_pages(allowed_hosts: Collection[str]) -> Objection:
    """Without a key, refuse what a page of another site sends: such requests name an `Origin` that is not this one.

    A site can give its own name this machine's address, so only the names of loopback and `allowed_hosts` are this one.
    """

    def objection(http: HTTPConnection) -> Response | None:
        origin = http.headers.get("origin", "")
        page = urlsplit(origin)
        name = page.hostname or ""
        ours = page.netloc == http.headers.get("host", "") and (is_loopback(name) or name in allowed_hosts)
        if not origin or ours:
            return None
        message = f"this server has no key, so it answers no web page of others (Origin: {origin})"
        return ServeError(message, status=403, type="permission_error").response()

    return objection


async def read_body(request: Request, *, max_bytes: int = MAX_BODY_BYTES) -> object:
    """The JSON of a request; ServeError if there is none, or too much."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > max_bytes:
            raise bad_request(f"the body is larger than {max_bytes} bytes", status=413)
    try:
        check_request(content)
    except ValueError as error:
        raise bad_request(str(error), status=413) from error
    try:
        body: object = from_json(content)
    except ValueError as error:
        raise bad_request(f"the body is no JSON: {error}") from error
    return body
