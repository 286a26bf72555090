"""Mark config fields for the wider toolkit's optimizer; this project has none and ignores the marks."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticUndefined


class SearchSpace(BaseModel):
    """The values that an optimizer may try: some of a list, a range, or other wordings of a prompt."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    values: Sequence[Any] | None = None
    low: float | None = None
    high: float | None = None
    log: bool = False
    step: float | None = None
    is_prompt: bool = False
    prompt: str | None = None
    prompt_purpose: str | None = None

    @model_validator(mode="after")
    def _values_or_a_range(self) -> Self:
        if self.values is not None and (self.low is not None or self.high is not None):
            raise ValueError("give values, or low and high, not both")
        return self


def OptimizableField(default: Any = PydanticUndefined, *, space: SearchSpace | None = None, **options: Any) -> Any:
    """A pydantic field whose JSON schema marks it as optimizable, with its search space."""
    extra = {**(options.pop("json_schema_extra", None) or {}), "optimizable": True}
    if space is not None:
        extra["search_space"] = space.model_dump(exclude_none=True)
    return Field(default, json_schema_extra=extra, **options)


class OptimizableMixin(BaseModel):
    """Which fields of a config an optimizer may vary."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    optimizable_params: list[str] = Field(default_factory=list, exclude=True)
    """Names of the fields to vary."""
    search_space: dict[str, SearchSpace] | None = Field(default=None, exclude=True)
    """Spaces that replace those of the fields."""
