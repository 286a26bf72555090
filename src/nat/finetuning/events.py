"""What happens in a run. Each event is appended to the run's log once; what shows or stores it observes the log.

Records of the journal are events, too: a job that was submitted or has ended, an epoch, a validation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nat.runs.records import (
    BestEpoch,
    EpochRecord,
    JobRecord,
    Phase,
    RunState,
    RunSummary,
    TrainingPhase,
    ValidationRecord,
)
from nat.runs.rollouts import RolloutRecord


@dataclass(frozen=True, slots=True)
class StepBegun:
    """A step that may take long has begun, such as "loading the model"; rollouts and training have other events."""

    what: str


@dataclass(frozen=True, slots=True)
class RunBegun:
    """The components are built, and the first epoch is next."""

    run_id: str
    run_dir: Path
    num_epochs: int
    goes_on: bool = False
    """Whether an earlier process has begun it; the next epoch may then be partly done."""


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """The rollouts of an epoch are next."""

    epoch: int
    """From 0."""
    num_epochs: int


@dataclass(frozen=True, slots=True)
class RolloutsBegun:
    """The rollouts of an epoch or a validation are being played."""

    phase: Phase
    total: int | None
    """All generations; None if it is not known."""


@dataclass(frozen=True, slots=True)
class RolloutDone:
    """One rollout has ended."""

    error: str | None
    """Why it failed; None if it did not."""


@dataclass(frozen=True, slots=True)
class RolloutsPlayed:
    """All rollouts of an epoch or a validation."""

    phase: Phase
    epoch: int
    records: Sequence[RolloutRecord]


@dataclass(frozen=True, slots=True)
class Said:
    """A message for people, in one or more whole sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Warned(Said):
    """Likewise, of something that is likely wrong; it stands in the log as well."""

    cause: str | None = None
    """What it is about, if it is not to be explained twice."""


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The run goes on and says that it ends early, or has ended."""

    state: RunState
    at: datetime
    message: str | None


Event = (
    StepBegun
    | RunBegun
    | TrainingPhase
    | EpochBegun
    | RolloutsBegun
    | RolloutDone
    | RolloutsPlayed
    | JobRecord
    | EpochRecord
    | ValidationRecord
    | BestEpoch
    | RunSummary
    | Said
    | StateChanged
)
Observer = Callable[[Event], None]
"""Hears of each event after the journal has it, on the run's event loop."""
