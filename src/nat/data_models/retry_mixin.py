"""Retry options in configs of the wider toolkit, for LLM clients of plug-ins."""

from pydantic import BaseModel, ConfigDict, Field


class RetryMixin(BaseModel):
    """Whether and when to retry a request."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    do_auto_retry: bool = Field(default=True, exclude=True)
    """Retry failed requests."""
    num_retries: int = Field(default=5, ge=0, exclude=True)
    """Number of retries."""
    retry_on_status_codes: list[int | str] = Field(default=[429, 500, 502, 503, 504], exclude=True)
    """HTTP status codes to retry after."""
    retry_on_errors: list[str] | None = Field(default=["Too Many Requests"], exclude=True)
    """Texts of an error message to retry after."""
