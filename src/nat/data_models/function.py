"""The base of every function and workflow config."""

from typing import ClassVar

from nat.data_models.common import HashableBaseModel, TypedBaseModel


class FunctionBaseConfig(TypedBaseModel, HashableBaseModel):
    """A function, named in the YAML under `functions`, or the workflow itself."""

    most_at_a_time: ClassVar[int | None] = None
    """Rollouts that it suits at the same time unless the user says how many; None: as many as the models answer."""
    name: str | None = None
    """Display name of the workflow in `nat serve`; by default the configuration file's name."""


class EmptyFunctionConfig(FunctionBaseConfig, name="EmptyFunctionConfig"):
    """The workflow of a YAML that has none."""
