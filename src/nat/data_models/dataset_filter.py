"""Which rows of a dataset take part, chosen by the values of their columns."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class EvalFilterEntryConfig(BaseModel):
    """Per column, the values that count; a text may be a pattern with `*` and `?`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    field: dict[str, list[Any]] = {}
    """Column name → values or patterns; a row matches if each column has one of its values."""


class EvalFilterConfig(BaseModel):
    """Keep the rows of the allow list, then drop those of the deny list."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    allowlist: EvalFilterEntryConfig | None = None
    """Rows that match every column named here stay; without it all stay."""
    denylist: EvalFilterEntryConfig | None = None
    """Rows that match any column named here are left out."""
