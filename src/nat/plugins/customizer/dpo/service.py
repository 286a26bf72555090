"""What the trainer adapter needs of a service that trains; `microservices` and `nemo_platform` implement it."""

from dataclasses import dataclass, field
from typing import Protocol

from nat.data_models.finetuning import DPOItem, TrainingStatusEnum
from nat.plugins.customizer.dpo.rows import Dataset, Row


@dataclass(frozen=True)
class JobOrder:
    """One training job."""

    name: str
    """Of the job; no other job has it, so that it can be found again."""
    dataset: str
    output_model: str
    """`namespace/name` of the trained model."""
    description: str
    seed: int


@dataclass(frozen=True)
class JobRef:
    """A job that the service has accepted."""

    job_id: str
    output_model: str | None
    """None if the service will make no model, only files."""


@dataclass(frozen=True)
class JobReport:
    """The state of a job, as the service reported it."""

    status: TrainingStatusEnum | None
    """None if the service's word for it is not known."""
    word: str
    """The service's word."""
    progress: float | None = None
    """Percent, from 0 to 100; None if the service reports none."""
    facts: tuple[str, ...] = ()
    """What else the service says, for people."""
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        return ", ".join([f"Status: {self.word}", *self.facts])


@dataclass(frozen=True)
class DeploymentReport:
    """The state of a deployment; failed if `ready` is False."""

    ready: bool | None
    """None while it is in between."""
    word: str
    description: str
    url: str | None


class TrainingService(Protocol):
    """One service, in one namespace."""

    async def check(self) -> None:
        """Raise BackendError unless the service answers, accepts the tokens and has the namespace."""

    async def ensure_namespace(self) -> None:
        """Create the namespace; nothing happens if it exists."""

    def row(self, pair: DPOItem) -> Row:
        """A line of the dataset's files."""

    async def upload(self, dataset: Dataset) -> None:
        """Create the dataset, which must not exist, with its two files."""

    async def create_job(self, order: JobOrder) -> JobRef:
        """Submit the job; not sent twice."""

    async def find_job(self, name: str) -> JobRef | None:
        """The job of that name."""

    async def report(self, job_id: str) -> JobReport:
        """The state of the job now; not retried."""

    async def cancel(self, job_id: str) -> None:
        """Stop the job."""

    async def deploy(self, model: str, run_id: str) -> str:
        """Begin to deploy the model; returns the deployment's name."""

    async def deployment(self, name: str) -> DeploymentReport | None:
        """The state of the deployment; None if the service does not list it."""
