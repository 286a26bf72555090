"""The base of configs of trackers, which show runs elsewhere."""

from typing import Annotated, ClassVar

from pydantic import Field

from nat.data_models.common import TypedBaseModel

TrackerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")]
"""It also names a file in the run's folder."""


class TrackerConfig(TypedBaseModel):
    """A tracker, named in the YAML under `finetuning.trackers`.

    A journal keeps it without secrets, and `nat runs send` reads it there: keys belong into the environment.
    """

    rollouts: int = Field(default=32, ge=0)
    """Rollouts in the table of an epoch or a validation: the first ones by example; 0 for no table."""

    packages: ClassVar[tuple[str, ...]] = ()
    """Modules that the tracker imports; a run is refused before it starts if one is not installed."""
    extra: ClassVar[str | None] = None
    """The extra of this project that installs them."""
