"""All servers share one form of error."""

import pytest
from pydantic import BaseModel, ValidationError

from nat.http.errors import ApiError, first_of, from_validation
from nat.secrets import REDACTED, new_key


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (529, "server_error"),
    ],
)
def test_the_type_follows_from_the_status(status, kind):
    """Statuses that HTTP does not name are errors of their range."""
    assert ApiError("why", status=status).body()["error"]["type"] == kind


def test_the_body_has_openais_shape_and_fastapis():
    """Clients of both find the message."""
    body = ApiError("why", type="Boom", param="input", code="c").body()
    assert body == {"error": {"message": "why", "type": "Boom", "param": "input", "code": "c"}, "detail": "why"}


def test_a_message_is_redacted_and_short():
    """A message may quote the client; secrets are replaced before it is cut."""
    error = ApiError(f"{'x' * 3990}{new_key()}{'y' * 1_000_000}")
    assert error.message == str(error) == f"{'x' * 3990}{REDACTED} …"


def test_findings_become_one_message():
    """The message has the first ten findings and the number of others."""

    class Request(BaseModel):
        n: int
        model: str

    with pytest.raises(ValidationError) as found:
        Request.model_validate({"n": "x"})
    error = from_validation(found.value, status=422)
    assert (error.status, error.param) == (422, "n")
    assert error.message.startswith(
        "n: should be a valid integer, unable to parse string as an integer; model: this key is required"
    )
    assert first_of([str(number) for number in range(12)]).endswith("9; and 2 more")
