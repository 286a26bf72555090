"""A call that gets no answer; in which words is the dialect's affair."""

from nat.secrets import redact


class Refusal(Exception):
    """Why, and the status that says it in OpenAI's API."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(redact(message))
        self.status = status
        self.message = redact(message)
