"""What a server answers before its application is asked, in the shape that OpenAI's clients read."""

from http import HTTPStatus

from nat.wire.answers import ErrorAnswer, ErrorDetail


def refusal_body(message: str) -> bytes:
    """An error of the client's."""
    error = ErrorDetail(message=message, type="invalid_request_error", param=None, code=None)
    return ErrorAnswer(error=error, detail=message).model_dump_json().encode()


def raw_refusal(status: HTTPStatus, message: str) -> bytes:
    """A whole answer of HTTP/1.1, after which the connection is closed."""
    body = refusal_body(message)
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
