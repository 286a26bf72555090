"""NeMo Platform, the microservices' open successor: workspaces, file sets and jobs of NeMo RL."""

from http import HTTPStatus

from nat.data_models.finetuning import TrainingJobRef
from nat.data_models.score import is_finite
from nat.errors import BackendError
from nat.http.service import Json
from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerAdapterConfig
from nat.plugins.customizer.dpo.connection import ServiceConnection
from nat.plugins.customizer.dpo.rows import Dataset, platform_row
from nat.plugins.customizer.dpo.service import Report, accepted
from nat.wire.training import JobStatus

_STATUSES = {
    "created": JobStatus.PENDING,
    "queued": JobStatus.PENDING,
    "pending": JobStatus.PENDING,
    "active": JobStatus.RUNNING,
    "cancelling": JobStatus.RUNNING,
    "pausing": JobStatus.RUNNING,
    "paused": JobStatus.RUNNING,
    "resuming": JobStatus.RUNNING,
    "completed": JobStatus.COMPLETED,
    "error": JobStatus.FAILED,
    "cancelled": JobStatus.CANCELED,
}


class NeMoPlatform:
    """One workspace of the platform; a `TrainingService`. A job's id is its name."""

    def __init__(self, config: NeMoCustomizerTrainerAdapterConfig, *, connection: ServiceConnection) -> None:
        self._config = config
        self._workspace = config.namespace
        self._connection = connection
        self._filesets = f"/apis/files/v2/workspaces/{self._workspace}/filesets"
        self._jobs = f"/apis/jobs/v2/workspaces/{self._workspace}/jobs"
        self._training_jobs = f"/apis/customization/v2/workspaces/{self._workspace}/rl/jobs"
        self.row = platform_row

    async def check(self) -> None:
        await self._connection.send("GET", f"/apis/entities/v2/workspaces/{self._workspace}")

    async def ensure_namespace(self) -> None:
        body = {"name": self._workspace, "description": f"NAT finetuning workspace: {self._workspace}"}
        await self._connection.send("POST", "/apis/entities/v2/workspaces", accept=[HTTPStatus.CONFLICT], json=body)

    async def upload(self, dataset: Dataset) -> None:
        body = {"name": dataset.name, "description": dataset.description, "purpose": "dataset"}
        await self._connection.send("POST", self._filesets, retries=0, json=body)
        for name, content in (("training", dataset.training), ("validation", dataset.validation)):
            path = f"{self._filesets}/{dataset.name}/-/{name}.jsonl"
            headers = {"Content-Type": "application/octet-stream"}
            await self._connection.send("PUT", path, content=content, headers=headers)

    async def create_job(self, dataset: Dataset, *, output_model: str, seed: int) -> TrainingJobRef:
        settings = self._config.hyperparameters
        training = {
            "type": settings.training_type,
            **settings.model_dump(include={"epochs", "batch_size", "learning_rate"}),
            **settings.dpo.model_dump(),
        }
        spec = {
            "model": self._config.customization_config,
            "dataset": f"{self._workspace}/{dataset.name}",
            "training": training,
            "output": {"name": output_model.rpartition("/")[2]},
        }
        body = {"name": dataset.name, "description": dataset.description, "spec": spec}
        return self._ref(dataset, await self._connection.json("POST", self._training_jobs, retries=0, json=body))

    async def find_job(self, dataset: Dataset) -> TrainingJobRef | None:
        path = f"{self._training_jobs}/{dataset.name}"
        response = await self._connection.send("GET", path, accept=[HTTPStatus.NOT_FOUND])
        if response.status_code == HTTPStatus.NOT_FOUND:
            return None
        return self._ref(dataset, self._connection.parsed(Json, response, wanted="a job"))

    async def report(self, job_id: str) -> Report:
        found = await self._connection.json("GET", f"{self._jobs}/{job_id}/status", retries=0)
        word = str(found.get("status", ""))
        tasks = [task for step in found.get("steps") or [] for task in step.get("tasks") or []]
        details = [task.get("status_details") or {} for task in tasks]
        progress = [each["progress_pct"] for each in details if is_finite(each.get("progress_pct"))]
        facts = [f"{each['phase']}" for each in details if each.get("phase")]
        if error := found.get("error_details"):
            facts.append(str(error))
        return Report(
            status=_STATUSES.get(word.lower()),
            word=word,
            progress=min(100.0, max(0.0, float(progress[-1]))) if progress else None,
            facts=tuple(facts[-3:]),
        )

    async def cancel(self, job_id: str) -> None:
        await self._connection.send("POST", f"{self._jobs}/{job_id}/cancel")

    async def deploy(self, model: str, run_id: str) -> str:
        raise BackendError(
            f"{model} cannot be deployed from here", hint="deploy it with the platform's own tools (`nemo`)"
        )

    async def deployment(self, name: str) -> Report:
        raise BackendError(f"there is no deployment {name}: the platform deploys with its own tools")

    def _ref(self, dataset: Dataset, record: Json) -> TrainingJobRef:
        """The job; its model is the output that was asked for."""
        name = record.get("name")
        if not name:
            raise BackendError(f"the platform accepted a job without a name: {record}", hint="check its version")
        output = ((record.get("spec") or {}).get("output") or {}).get("name")
        return accepted(dataset, str(name), f"{self._workspace}/{output}" if output else None)
