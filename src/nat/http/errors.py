"""The error that ends a request, and its body in the shape that OpenAI's clients read. Pure."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from nat.errors import findings_of
from nat.secrets import redact

_TYPES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
_MAX_MESSAGE_CHARS = 4000
"""A message may quote what a client sent, which can be megabytes."""
_MAX_FINDINGS = 10


class ApiError(Exception):
    """A request that is refused or fails; the message is redacted, `param` names the field at fault."""

    def __init__(
        self,
        message: str,
        *,
        status: int = HTTPStatus.BAD_REQUEST,
        type: str | None = None,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        """`type` follows from the status if left out."""
        message = redact(message)
        self.message = message if len(message) <= _MAX_MESSAGE_CHARS else message[:_MAX_MESSAGE_CHARS] + " …"
        super().__init__(self.message)
        self.status = int(status)
        self.type = type or error_type(status)
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """The body, with the message also where clients of FastAPI servers look for it."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error, "detail": self.message}

    def json(self) -> bytes:
        """The body as JSON bytes."""
        return to_json(self.body())


class ClientDisconnected(Exception):
    """The client closed the connection before it had its response."""


def error_type(status: int) -> str:
    """OpenAI's error type for a status."""
    default = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    return _TYPES.get(status, default)


def from_validation(error: ValidationError, *, status: int = HTTPStatus.BAD_REQUEST) -> ApiError:
    """The first findings in one message; `param` is the place of the first."""
    findings = findings_of(error)
    return ApiError(first_of(list(map(str, findings))), status=status, param=findings[0].place or None)


def first_of(findings: Sequence[str]) -> str:
    """The first findings, and how many more there are."""
    more = len(findings) - _MAX_FINDINGS
    return "; ".join([*findings[:_MAX_FINDINGS], *([f"and {more} more"] if more > 0 else [])])
