"""What became of a request, as its handler notes it for the metrics of the server."""

from dataclasses import dataclass, field
from http import HTTPStatus

from nat.http.asgi import Scope

_STATE = "nat.outcome"
DISCONNECTED = "client disconnected"
OTHER = "other status"
"""Of a server behind this one: 529 and 520 have no name in HTTP, and each name is a label."""
_PHRASES = {status.value: status.phrase.lower() for status in HTTPStatus}
_NO_ANSWER = (0, 499)
"""No status, and the one that proxies log for a client that had disconnected."""


@dataclass(eq=False)
class RequestOutcome:
    """The outcome of one request; empty if it was for no model and no workflow."""

    model: str | None = None
    """Name of the model or workflow that answers; of a bounded number of names, since each is a label."""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    first_token_at: float | None = None
    """Time of the first token, by `perf_counter`; None if it is not known."""
    finish_reasons: list[str] = field(default_factory=list)
    cause: str | None = None
    """Why it failed after its response had begun, when a status can no longer say so."""


def outcome_of(scope: Scope) -> RequestOutcome:
    """The outcome of the request with this scope, which its handler changes."""
    found: RequestOutcome = scope.setdefault("state", {}).setdefault(_STATE, RequestOutcome())
    return found


def cause_of(status: int) -> str | None:
    """Why a request with this status failed; None if it did not."""
    if status in _NO_ANSWER:
        return DISCONNECTED
    if status < HTTPStatus.BAD_REQUEST:
        return None
    return _PHRASES.get(status, OTHER)
