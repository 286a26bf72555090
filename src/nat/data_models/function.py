"""The base of every function and workflow config."""

from nat.data_models.common import HashableBaseModel, TypedBaseModel


class FunctionBaseConfig(TypedBaseModel, HashableBaseModel):
    """A function, named in the YAML under `functions`, or the workflow itself."""

    name: str | None = None
    """Display name: `nat serve` calls the workflow by it; the configuration file's name if left out."""


class EmptyFunctionConfig(FunctionBaseConfig, name="EmptyFunctionConfig"):
    """The workflow of a YAML that has none."""
