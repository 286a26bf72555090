"""The base of every function and workflow config."""

from nat.data_models.common import TypedBaseModel


class FunctionBaseConfig(TypedBaseModel):
    """A function, named in the YAML under `functions`, or the workflow itself."""


class EmptyFunctionConfig(FunctionBaseConfig, name="EmptyFunctionConfig"):
    """Stands where the YAML names no workflow."""
