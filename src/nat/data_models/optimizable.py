"""Marks of config fields for the wider toolkit's optimizer; this project has none and reads no mark."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticUndefined


class SearchSpace(BaseModel):
    """The values that an optimizer may try, as the toolkit describes them."""

    model_config = ConfigDict(extra="allow")


def OptimizableField(default: Any = PydanticUndefined, *, space: SearchSpace | None = None, **options: Any) -> Any:
    """A pydantic field; its mark has no effect here."""
    del space
    return Field(default, **options)


class OptimizableMixin(BaseModel):
    """Which fields of a config an optimizer may vary."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    optimizable_params: list[str] = Field(default_factory=list, exclude=True)
    """Names of the fields to vary."""
    search_space: dict[str, SearchSpace] | None = Field(default=None, exclude=True)
    """Spaces that replace those of the fields."""
