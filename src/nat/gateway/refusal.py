"""A call that gets no answer; in which words is the dialect's affair."""


class Refusal(Exception):
    """Why, and the status that says it in OpenAI's API."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
