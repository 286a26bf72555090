"""The interface of a trainer adapter, which submits trajectories to a training backend and may keep checkpoints."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict

from nat.data_models.finetuning import (
    FinetuneConfig,
    ServedModel,
    TrainerAdapterConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrajectoryCollection,
)
from nat.sizing.forecast import ForecastRequest, TrainingForecast
from nat.wire.training import Compares

T = TypeVar("T")


class Recipe(BaseModel):
    """What an algorithm learns from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    compares: Compares = "group"
    """What the reward of a rollout is compared with: the others of its example (`group`), those of the whole `batch`,
    or `nothing`. Only in the first case do groups of equal rewards teach nothing."""
    only_samples: bool = False
    """It trains only what the model has sampled, not texts from a file."""


class TrainerAdapter(ABC):
    """Abstract: submits trajectories as training jobs and reports their status."""

    drops_equal_groups: bool = False
    """True if groups of equal rewards need not be submitted, since training would give them an advantage of zero; else
    the adapter gets all groups that the curriculum has left."""
    recipe: Recipe = Recipe()
    """What the algorithm learns from; final after `initialize`."""

    def __init__(self, adapter_config: TrainerAdapterConfig) -> None:
        self.adapter_config = adapter_config
        self.run_config: FinetuneConfig = None  # type: ignore[assignment] # the guide's signature; set by `initialize`

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Called before anything else, and again for each phase of a run if it is a `TakesOver`."""
        self.run_config = run_config
        self.adapter_config.reward = run_config.reward_function

    @abstractmethod
    async def is_healthy(self) -> bool:
        """True if the backend can take jobs; called before the first rollout."""
        raise NotImplementedError

    @abstractmethod
    async def submit(self, trajectories: TrajectoryCollection) -> TrainingJobRef:
        """Send an epoch's trajectories; returns as soon as the backend has them."""
        raise NotImplementedError

    @abstractmethod
    async def status(self, ref: TrainingJobRef) -> TrainingJobStatus:
        """The status of the job; a final one can be read any number of times."""
        raise NotImplementedError

    @abstractmethod
    async def wait_until_complete(self, ref: TrainingJobRef, poll_interval: float = 10.0) -> TrainingJobStatus:
        """Wait for the job's end.

        In the final status, `metadata["metrics"]` (name → number) are added to the epoch's metrics, and
        `metadata["policy_version"]` names the new weights. The metrics `trained_groups` and `trained_tokens` are what
        the job trained; without them, all that was submitted counts as trained.
        """
        raise NotImplementedError

    @abstractmethod
    def log_progress(self, ref: TrainingJobRef, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Save metrics of a job in a place of the adapter's choice."""
        raise NotImplementedError

    def warnings(self) -> Sequence[str]:
        """Likely mistakes that the backend has told of, in whole sentences; asked once, after `initialize`."""
        return ()

    async def forecast(self, request: ForecastRequest) -> TrainingForecast | None:
        """What training would take on this machine, with the adapter's settings; None if the server is elsewhere."""
        return None

    async def export_model(self, name: str) -> Path | None:
        """Write the trained model under that name; None if the backend keeps it."""
        return None

    async def served_model(self) -> ServedModel | None:
        """Where the backend serves the trained model after the run; None if it does not."""
        return None


class KeptCheckpoint(BaseModel):
    """A checkpoint that is not deleted while the run goes on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """Name of the weights in the backend, such as `my_model@20`."""
    path: str | None = None
    """The checkpoint's folder; None if only the backend can read it."""
    others: tuple[str, ...] = ()
    """The folders of further models' checkpoints, if the adapter trains several."""


@runtime_checkable
class TakesOver(Protocol):
    """An adapter that can train a phase of a run inherits from this class."""

    async def take_over(self, previous: TrainerAdapter) -> None:
        """Go on with the weights that another adapter has trained, as a phase of the run ends and the next one begins.

        What belongs to the algorithm begins anew: optimizer state, schedule, and the model that KL terms compare with.
        """
        ...


@runtime_checkable
class SendsAgain(Protocol):
    """An adapter whose backend may lose updates in a kill inherits from this class."""

    async def send_again(self, completed: Sequence[str]) -> None:
        """Have the backend train again what its checkpoint lacks of these jobs, as a run goes on.

        The jobs are those of the journal that were completed, in order; one that was under way is submitted again.
        """
        ...


@runtime_checkable
class CheckpointKeeper(Protocol):
    """An adapter that keeps checkpoints inherits from this class."""

    async def keep_best(self) -> KeptCheckpoint:
        """Keep the current weights until this is called again."""
        ...

    async def export_best(self, name: str) -> Path | None:
        """Export the kept checkpoint as a plain model of that name; None if there is none, or the backend keeps it."""
        ...


@runtime_checkable
class TrainsElsewhere(Protocol):
    """A trainer or an adapter inherits from this class if the workflow may not call the model that it trains."""

    def no_verdict(self) -> str | None:
        """Why held-out scores of the trained model cannot be had, in half a sentence.

        None if the workflow calls that model and `run` waits for all jobs. Asked before the first validation, and
        before the last one.
        """
        ...


def check_ready(component: object, ready: T | None, *, first: str = "initialize(run_config)") -> T:
    """Give `ready`; RuntimeError unless it has been set, which the method `first` does."""
    if ready is None:
        raise RuntimeError(f"{type(component).__name__} is not initialized: await {first} first")
    return ready
