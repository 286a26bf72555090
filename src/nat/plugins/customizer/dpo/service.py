"""NeMo's microservices: Entity Store, Data Store, Customizer and Deployment Management, in one namespace.

The Data Store speaks the Hugging Face Hub's protocol, so `huggingface_hub` uploads the files.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BytesIO
from logging import ERROR
from typing import Any

import httpx
from pydantic import BaseModel

from nat.data_models.finetuning import TrainingJobRef
from nat.data_models.score import is_finite
from nat.errors import BackendError, BackendUnreachable, describe_error
from nat.http.service import Json, ServiceClient, ServiceRefused, Sleep
from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerAdapterConfig
from nat.plugins.customizer.dpo.rows import Dataset
from nat.wire.extras import install_hint, missing_packages
from nat.wire.training import JobStatus

BACKEND_NAME = "nemo-customizer"

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
_METRICS = {
    "train_loss": "train_loss",
    "val_loss": "val_loss",
    "epochs_completed": "epochs_completed",
    "optimizer_steps": "steps_completed",
    "best_epoch": "best_epoch",
}
"""Our name → the service's."""
_JOBS = "/v1/customization/jobs"
_HUB = "/v1/hf"
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_RETRIES = 3
_PAGE_SIZE = 100


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


def job_id_of(ref: TrainingJobRef) -> str:
    """The service's id of the job; ValueError if the reference has none."""
    if ref.job_id is None:
        raise ValueError(f"No training job found for run {ref.run_id}")
    return ref.job_id


class _Pagination(BaseModel):
    total_pages: int | None = None


class _Page(BaseModel):
    """A part of a list, with the fields that are used."""

    data: list[Json] | None = None
    pagination: _Pagination | None = None


class _Connection(ServiceClient):
    """One of the services at one address; `key_field` is the field of the adapter that holds its token."""

    def __init__(self, url: str, token: str, *, name: str, key_field: str, sleep: Sleep) -> None:
        super().__init__(url, token, name=name, retries=_RETRIES, timeout=_TIMEOUT, sleep=sleep)
        self._key_field = key_field

    def hint(self, status: int | None) -> str:
        if status is None:
            return f"check the address of {self.name} in the trainer adapter, and that the service runs"
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return f"set `{self._key_field}` of the trainer adapter to a token that this service accepts"
        if status == HTTPStatus.NOT_FOUND:
            return f"check that {self.name} listens at this address, and the names in the trainer adapter"
        return super().hint(status)


class Customizer:
    """One namespace of the services. A job has the name of its dataset, so that it can be found again."""

    def __init__(
        self, config: NeMoCustomizerTrainerAdapterConfig, *, entities: ServiceClient, files: ServiceClient
    ) -> None:
        self._config = config
        self._namespace = config.namespace
        self._entities = entities
        self._files = files

    async def check(self) -> None:
        """Raise BackendError unless the services answer and accept the tokens."""
        await self._entities.send("GET", _JOBS, params={"page_size": 1})
        # A dataset that is missing says so, too.
        path = f"{_HUB}/api/datasets/{self._namespace}/nat-check/revision/main"
        await self._files.send("GET", path, accept=[HTTPStatus.NOT_FOUND])

    async def ensure_namespace(self) -> None:
        """Create the namespace; nothing happens if it exists."""
        body = {"id": self._namespace, "description": f"NAT finetuning namespace: {self._namespace}"}
        await self._entities.send("POST", "/v1/namespaces", accept=[HTTPStatus.CONFLICT], json=body)
        exists = [HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY]
        form = {"namespace": self._namespace}
        await self._files.send("POST", "/v1/datastore/namespaces", accept=exists, data=form)

    async def upload(self, dataset: Dataset) -> None:
        """Create the dataset, which must not exist, with its two files."""
        await asyncio.to_thread(self._upload_files, dataset)
        body = {
            "name": dataset.name,
            "namespace": self._namespace,
            "files_url": f"hf://datasets/{self._namespace}/{dataset.name}",
            "description": dataset.description,
        }
        await self._entities.send("POST", "/v1/datasets", json=body, accept=[HTTPStatus.CONFLICT])

    def _upload_files(self, dataset: Dataset) -> None:
        if missing_packages(["huggingface_hub"]):
            raise BackendError(
                "the Data Store needs huggingface_hub, which is not installed", hint=install_hint("customizer")
            )
        from huggingface_hub import CommitOperationAdd, HfApi, logging
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
        from huggingface_hub.utils.tqdm import disable_progress_bars

        logging.set_verbosity(ERROR)  # else it warns of each upload that does not go by Xet
        disable_progress_bars()
        token = self._config.hf_token.get_secret_value()
        hub = HfApi(endpoint=f"{self._config.datastore_host}{_HUB}", token=token or False)
        repository = f"{self._namespace}/{dataset.name}"
        # A stream goes by the store's own protocol, where a path or bytes would go by Xet, which only the Hub speaks.
        files = [
            CommitOperationAdd("training/training_file.jsonl", BytesIO(dataset.training)),
            CommitOperationAdd("validation/validation_file.jsonl", BytesIO(dataset.validation)),
        ]
        try:
            hub.create_repo(repository, repo_type="dataset")
            hub.create_commit(repository, files, repo_type="dataset", commit_message=dataset.description)
        except OfflineModeIsEnabled as error:
            raise BackendUnreachable(
                "HF_HUB_OFFLINE is set, so nothing can be uploaded to the Data Store", hint="unset it for this run"
            ) from error
        except HfHubHTTPError as error:
            status = error.response.status_code
            raise ServiceRefused(
                f"{self._files.name} answered with {status}: {describe_error(error)}",
                status=status,
                hint=self._files.hint(status),
            ) from error

    async def create_job(self, dataset: Dataset, *, output_model: str, seed: int) -> TrainingJobRef:
        """Submit a job that makes `output_model`, `namespace/name`; not sent twice."""
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
        return _accepted(dataset, await self._json("POST", _JOBS, json=body))

    async def find_job(self, dataset: Dataset) -> TrainingJobRef | None:
        """The job of that dataset."""
        async for job in self._listed(_JOBS):
            if job.get("name") == dataset.name and job.get("namespace", self._namespace) == self._namespace:
                return _accepted(dataset, job)
        return None

    async def report(self, job_id: str) -> Report:
        """The state of the job now; not retried."""
        details = await self._json("GET", f"{_JOBS}/{job_id}/status")
        word, progress = str(details.get("status", "")), details.get("percentage_done")
        epochs = details.get("epochs_completed")
        facts = [] if epochs is None else [f"Epochs: {epochs}"]
        if _STATUSES.get(word.lower()) in {JobStatus.FAILED, JobStatus.CANCELED}:
            logs = (details.get("status_logs") or [])[-3:]
            facts += [": ".join(str(log[name]) for name in ("message", "detail") if log.get(name)) for log in logs]
        return Report(
            status=_STATUSES.get(word.lower()),
            word=word,
            progress=min(100.0, max(0.0, float(progress))) if is_finite(progress) else None,
            facts=tuple(facts),
            metrics={ours: float(details[name]) for ours, name in _METRICS.items() if is_finite(details.get(name))},
        )

    async def cancel(self, job_id: str) -> None:
        """Stop the job."""
        await self._entities.send("POST", f"{_JOBS}/{job_id}/cancel")

    async def deploy(self, model: str, run_id: str) -> str:
        """Begin to deploy the model; returns the deployment's name."""
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
        """The state of the deployment now."""
        async for each in self._listed("/v1/deployment/model-deployments"):
            if (each.get("name"), each.get("namespace")) == (name, self._namespace):
                details: Json = each.get("status_details") or {}
                word = str(details.get("status", "unknown"))
                status, text = _DEPLOYED.get(word.lower(), JobStatus.RUNNING), str(details.get("description") or "")
                return Report(status, word, tuple(filter(None, [text.strip()])), url=each.get("url") or None)
        return Report(JobStatus.PENDING, "not listed yet")

    async def _json(self, method: str, path: str, **options: Any) -> Json:
        """The object that the entities' service answers with, asked once."""
        return await self._entities.read(Json, method, path, wanted="a JSON object", retries=0, **options)

    async def _listed(self, path: str) -> AsyncIterator[Json]:
        """The entries of a list, of all of its pages."""
        page = 1
        while True:
            asked = {"page": page, "page_size": _PAGE_SIZE}
            answer = await self._entities.read(_Page, "GET", path, wanted="a list", params=asked)
            for entry in answer.data or ():
                yield entry
            total = None if answer.pagination is None else answer.pagination.total_pages
            if not answer.data or total is None or page >= total:
                return
            page += 1


@asynccontextmanager
async def connected(
    config: NeMoCustomizerTrainerAdapterConfig, *, sleep: Sleep = asyncio.sleep
) -> AsyncGenerator[Customizer, None]:
    """The services of the configuration; retries wait by `sleep`."""
    key, token = config.api_key.get_secret_value(), config.hf_token.get_secret_value()
    async with (
        _Connection(
            config.entity_host, key, name="NeMo Customizer (entity_host)", key_field="api_key", sleep=sleep
        ) as entities,
        _Connection(
            config.datastore_host, token, name="the Data Store (datastore_host)", key_field="hf_token", sleep=sleep
        ) as files,
    ):
        yield Customizer(config, entities=entities, files=files)


def _accepted(dataset: Dataset, record: Json) -> TrainingJobRef:
    """A job that the service has accepted; without an output model, it will make only files."""
    job_id = record.get("id")
    if not job_id:
        raise BackendError(
            f"the Customizer accepted a job without an id: {record}", hint="check the version of the service"
        )
    facts = {
        "job_id": str(job_id),
        "output_model": record.get("output_model") or None,
        "dataset_name": dataset.name,
    }
    return TrainingJobRef(run_id=dataset.run_id, backend=BACKEND_NAME, metadata=facts)
