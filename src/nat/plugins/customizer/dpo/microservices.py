"""NeMo's microservices: Entity Store, Data Store, Customizer and Deployment Management."""

from http import HTTPStatus
from typing import Any

from nat.data_models.finetuning import TrainingJobRef
from nat.data_models.score import is_finite
from nat.errors import BackendError
from nat.http.service import Json
from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerAdapterConfig
from nat.plugins.customizer.dpo.connection import ServiceConnection
from nat.plugins.customizer.dpo.data_store import DataStore
from nat.plugins.customizer.dpo.rows import Dataset, demonstration_row, preference_row
from nat.plugins.customizer.dpo.service import Report, accepted
from nat.wire.training import JobStatus

_STATUSES = {
    "created": JobStatus.PENDING,
    "pending": JobStatus.PENDING,
    "running": JobStatus.RUNNING,
    "cancelling": JobStatus.RUNNING,
    "completed": JobStatus.COMPLETED,
    "failed": JobStatus.FAILED,
    "cancelled": JobStatus.CANCELED,
    "canceled": JobStatus.CANCELED,
}
_DEPLOYED = {
    "ready": JobStatus.COMPLETED,
    "failed": JobStatus.FAILED,
    "error": JobStatus.FAILED,
    "cancelled": JobStatus.CANCELED,
}
"""All other words are in between."""
_METRICS = ("train_loss", "val_loss", "epochs_completed", "steps_completed", "best_epoch")
_JOBS = "/v1/customization/jobs"


class Microservices:
    """One namespace of the microservices; a `TrainingService`."""

    def __init__(
        self, config: NeMoCustomizerTrainerAdapterConfig, *, entities: ServiceConnection, data_store: DataStore
    ) -> None:
        self._config = config
        self._namespace = config.namespace
        self._entities = entities
        self._data_store = data_store
        self.row = preference_row if config.hyperparameters.training_type == "dpo" else demonstration_row

    async def check(self) -> None:
        await self._entities.send("GET", _JOBS, params={"page_size": 1})
        await self._data_store.check()

    async def ensure_namespace(self) -> None:
        body = {"id": self._namespace, "description": f"NAT finetuning namespace: {self._namespace}"}
        await self._entities.send("POST", "/v1/namespaces", accept=[HTTPStatus.CONFLICT], json=body)
        await self._data_store.ensure_namespace()

    async def upload(self, dataset: Dataset) -> None:
        files = {
            "training/training_file.jsonl": dataset.training,
            "validation/validation_file.jsonl": dataset.validation,
        }
        await self._data_store.upload(dataset.name, files, dataset.description)
        body = {
            "name": dataset.name,
            "namespace": self._namespace,
            "files_url": f"hf://datasets/{self._namespace}/{dataset.name}",
            "description": dataset.description,
        }
        await self._entities.send("POST", "/v1/datasets", json=body, accept=[HTTPStatus.CONFLICT])

    async def create_job(self, dataset: Dataset, *, output_model: str, seed: int) -> TrainingJobRef:
        settings = self._config.hyperparameters
        body = {
            "name": dataset.name,
            "namespace": self._namespace,
            "description": dataset.description,
            "config": self._config.customization_config,
            "dataset": {"name": dataset.name, "namespace": self._namespace},
            "output_model": output_model,
            "hyperparameters": {
                **settings.model_dump(exclude=set() if settings.training_type == "dpo" else {"dpo"}),
                "seed": seed,
            },
        }
        return _ref(dataset, await self._entities.json("POST", _JOBS, retries=0, json=body))

    async def find_job(self, dataset: Dataset) -> TrainingJobRef | None:
        async for job in self._entities.listed(_JOBS):
            if job.get("name") == dataset.name and job.get("namespace", self._namespace) == self._namespace:
                return _ref(dataset, job)
        return None

    async def report(self, job_id: str) -> Report:
        details = await self._entities.json("GET", f"{_JOBS}/{job_id}/status", retries=0)
        word, progress = str(details.get("status", "")), details.get("percentage_done")
        epochs = details.get("epochs_completed")
        facts = [] if epochs is None else [f"Epochs: {epochs}"]
        if _STATUSES.get(word.lower()) in {JobStatus.FAILED, JobStatus.CANCELED}:
            facts += [_log_line(entry) for entry in (details.get("status_logs") or [])[-3:]]
        return Report(
            status=_STATUSES.get(word.lower()),
            word=word,
            progress=min(100.0, max(0.0, float(progress))) if is_finite(progress) else None,
            facts=tuple(facts),
            metrics={name: float(details[name]) for name in _METRICS if is_finite(details.get(name))},
        )

    async def cancel(self, job_id: str) -> None:
        await self._entities.send("POST", f"{_JOBS}/{job_id}/cancel")

    async def deploy(self, model: str, run_id: str) -> str:
        wanted = self._config.deployment_config
        settings = {
            "name": f"nat-deploy-config-{run_id}",
            "namespace": self._namespace,
            "description": wanted.description,
            "model": model,
            "nim_deployment": {"image_name": wanted.image_name, "image_tag": wanted.image_tag, "gpu": wanted.gpu},
        }
        # The names have the run's id: what exists was made before the run was resumed.
        again = [HTTPStatus.CONFLICT]
        await self._entities.send("POST", "/v1/deployment/configs", json=settings, accept=again)
        name = wanted.deployment_name or f"nat-deployment-{run_id}"
        body = {
            "name": name,
            "namespace": self._namespace,
            "description": wanted.description,
            "config": f"{self._namespace}/{settings['name']}",
        }
        own = [] if wanted.deployment_name else again
        await self._entities.send("POST", "/v1/deployment/model-deployments", json=body, accept=own)
        return name

    async def deployment(self, name: str) -> Report:
        async for each in self._entities.listed("/v1/deployment/model-deployments"):
            if (each.get("name"), each.get("namespace")) == (name, self._namespace):
                details: Json = each.get("status_details") or {}
                word = str(details.get("status", "unknown"))
                status, text = _DEPLOYED.get(word.lower(), JobStatus.RUNNING), str(details.get("description") or "")
                return Report(status, word, tuple(filter(None, [text.strip()])), url=each.get("url") or None)
        return Report(JobStatus.PENDING, "not listed yet")


def _ref(dataset: Dataset, record: Json) -> TrainingJobRef:
    job_id: Any = record.get("id")
    if not job_id:
        raise BackendError(
            f"the Customizer accepted a job without an id: {record}", hint="check the version of the service"
        )
    return accepted(dataset, str(job_id), record.get("output_model") or None)


def _log_line(entry: Json) -> str:
    return ": ".join(str(entry[name]) for name in ("message", "detail") if entry.get(name))
