"""What the trainer adapter needs of a service that trains; `microservices` and `nemo_platform` implement it."""

from dataclasses import dataclass, field
from typing import Protocol

from nat.data_models.finetuning import DPOItem, TrainingJobRef
from nat.plugins.customizer.dpo.rows import Dataset, Row
from nat.wire.training import JobStatus

BACKEND_NAME = "nemo-customizer"


@dataclass(frozen=True)
class Report:
    """The state of a job or of a deployment, as the service reported it."""

    status: JobStatus | None
    """None if the service's word for it is not known. A deployment is completed when it is ready."""
    word: str
    """The service's word."""
    facts: tuple[str, ...] = ()
    """What else the service says, for people."""
    progress: float | None = None
    """Percent, from 0 to 100; None if the service reports none."""
    metrics: dict[str, float] = field(default_factory=dict)
    url: str | None = None
    """Of a deployment."""

    @property
    def sentence(self) -> str:
        return ", ".join([f"Status: {self.word}", *self.facts])


def accepted(dataset: Dataset, job_id: str, output_model: str | None) -> TrainingJobRef:
    """A job that the service has accepted; without an output model, it will make only files."""
    facts = {"job_id": job_id, "output_model": output_model, "dataset_name": dataset.name}
    return TrainingJobRef(run_id=dataset.run_id, backend=BACKEND_NAME, metadata=facts)


def job_id_of(ref: TrainingJobRef) -> str:
    """The service's id of the job; ValueError if the reference has none."""
    if ref.job_id is None:
        raise ValueError(f"No training job found for run {ref.run_id}")
    return ref.job_id


class TrainingService(Protocol):
    """One service, in one namespace. A job has the name of its dataset, so that it can be found again."""

    async def check(self) -> None:
        """Raise BackendError unless the service answers, accepts the tokens and has the namespace."""

    async def ensure_namespace(self) -> None:
        """Create the namespace; nothing happens if it exists."""

    def row(self, pair: DPOItem) -> Row:
        """A line of the dataset's files."""

    async def upload(self, dataset: Dataset) -> None:
        """Create the dataset, which must not exist, with its two files."""

    async def create_job(self, dataset: Dataset, *, output_model: str, seed: int) -> TrainingJobRef:
        """Submit a job that makes `output_model`, `namespace/name`; not sent twice."""

    async def find_job(self, dataset: Dataset) -> TrainingJobRef | None:
        """The job of that dataset."""

    async def report(self, job_id: str) -> Report:
        """The state of the job now; not retried."""

    async def cancel(self, job_id: str) -> None:
        """Stop the job."""

    async def deploy(self, model: str, run_id: str) -> str:
        """Begin to deploy the model; returns the deployment's name."""

    async def deployment(self, name: str) -> Report:
        """The state of the deployment now."""
