"""How configs of the wider toolkit say which requests are sent again; an LLM client of a plug-in reads it."""

from pydantic import BaseModel, ConfigDict, Field


class RetryMixin(BaseModel):
    """Whether and when to send a request again."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    do_auto_retry: bool = Field(default=True, exclude=True)
    """Send a request again after a failure."""
    num_retries: int = Field(default=5, ge=0, exclude=True)
    """How often."""
    retry_on_status_codes: list[int | str] = Field(default=[429, 500, 502, 503, 504], exclude=True)
    """After which HTTP status codes."""
    retry_on_errors: list[str] | None = Field(default=["Too Many Requests"], exclude=True)
    """After which texts in an error message."""
