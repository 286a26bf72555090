"""The trainer adapter that trains with NeMo Customizer: upload pairs, submit one job, wait, deploy."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

from nat.builder.builder import Builder
from nat.capture.context import Redirects, redirecting, stable_seed
from nat.data_models.finetuning import (
    FinetuneConfig,
    ServedModel,
    TrainingJobRef,
    TrainingJobStatus,
    TrajectoryCollection,
)
from nat.errors import BackendError, TrainingFailed
from nat.files import write_text
from nat.finetuning.interfaces.trainer_adapter import Recipe, TrainerAdapter, TrainsElsewhere, check_ready
from nat.finetuning.preferences.trajectories import check_any_left, without_problems
from nat.finetuning.progress import append_progress
from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerAdapterConfig
from nat.plugins.customizer.dpo.paid_jobs import cancel_job, submit_job, tell_the_user, until_final
from nat.plugins.customizer.dpo.rows import Dataset, json_lines, pairs_of, split
from nat.plugins.customizer.dpo.service import Customizer, Report, connected, job_id_of
from nat.plugins.customizer.dpo.trained_llm import send_to, trained_llm
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_trainer_adapter
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

_SERVED_CHECKS = 3
"""A proxy in front of the deployments lists a new one with a delay."""


class NeMoCustomizerTrainerAdapter(TrainerAdapter, TrainsElsewhere):
    """One training job per run. A job is known by its reference alone, so that another process can wait for it."""

    recipe = Recipe(compares="nothing")

    def __init__(
        self,
        adapter_config: NeMoCustomizerTrainerAdapterConfig,
        *,
        service: Customizer | None = None,
        llms: Mapping[str, OpenAIModelConfig] = MappingProxyType({}),
        redirects: Redirects | None = None,
    ) -> None:
        """Connect on `initialize`; without a `service`, which its opener closes, to one that `close` closes."""
        super().__init__(adapter_config)
        self._config = adapter_config
        self._connected = service
        self._opened = AsyncExitStack()
        self._llms = llms
        self._redirects = redirects or Redirects()
        self._waiting: set[str] = set()
        self._datasets: set[str] = set()
        self._served: ServedModel | None = None
        self._no_verdict: str | None = None

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Create the namespace, and check that all services answer and accept their tokens.

        Raises:
            BackendUnreachable: a service does not answer.
            ServiceRefused: a service refuses a token, or has no such namespace.

        """
        await super().initialize(run_config)
        if self._connected is None:
            self._connected = await self._opened.enter_async_context(connected(self._config))
        if self._config.create_namespace_if_missing:
            await self._service.ensure_namespace()
        await self._service.check()
        self._no_verdict = self._hindrance()
        logger.info("NeMo Customizer at %s is ready", self._config.entity_host)

    @property
    def _service(self) -> Customizer:
        return check_ready(self, self._connected)

    async def close(self) -> None:
        """Close what the adapter opened; may be called at any time, and again."""
        await self._opened.aclose()

    async def is_healthy(self) -> bool:
        try:
            await self._service.check()
        except BackendError as error:
            logger.warning("%s", error)
            return False
        return True

    def no_verdict(self) -> str | None:
        return self._no_verdict

    async def submit(self, trajectories: TrajectoryCollection) -> TrainingJobRef:
        """Upload the pairs as a dataset of their own, and submit a job.

        Raises:
            InvalidTrajectories: there are no pairs, or all are of one example.
            NoLearningSignal: no pair says which response is better.
            ValueError: a job of this run is being submitted or waited for.

        """
        check_ready(self, self.run_config)
        run_id = trajectories.run_id
        if run_id in self._waiting:
            raise ValueError(f"Training job for run {run_id} already exists")
        kept, causes = without_problems(trajectories)
        check_any_left(kept, causes)
        for cause, count in causes.items():
            logger.warning("%d preference pairs are left out: %s", count, cause)
        dataset = self._dataset(kept)
        if self._config.dataset_output_dir is not None:
            await asyncio.to_thread(_write_copy, Path(self._config.dataset_output_dir) / run_id, dataset)
        self._waiting.add(run_id)
        try:
            await self._service.upload(dataset)
            model = self._config.output_model or f"{self._config.namespace}/{dataset.name}"
            ref = await submit_job(self._service, dataset, output_model=model, seed=self.run_config.seed)
        except BaseException:
            self._waiting.discard(run_id)
            raise
        facts = ref.metadata or {}
        logger.info("Submitted customization job %s for run %s: %s", facts["job_id"], run_id, facts["output_model"])
        return ref

    async def status(self, ref: TrainingJobRef) -> TrainingJobStatus:
        """The job's status; one that the service alone knows counts as running.

        Raises:
            BackendError: it cannot be read; that is no status of the job.

        """
        return self._status(ref, await self._service.report(job_id_of(ref)))

    async def wait_until_complete(self, ref: TrainingJobRef, poll_interval: float | None = None) -> TrainingJobStatus:
        """Wait for the job and, if configured, for the deployment; canceling the wait cancels the job.

        Raises:
            TrainingFailed: the job was not done in time, and was canceled.
            BackendError: the status could not be read several times in a row, and the job goes on; or the trained
                model could not be deployed.

        """
        interval = poll_interval or self._config.poll_interval_seconds
        self._waiting.add(ref.run_id)
        try:
            report = await self._ended(job_id_of(ref), interval)
        finally:
            self._waiting.discard(ref.run_id)
        if report.status is JobStatus.COMPLETED and self._config.deploy_on_completion:
            await self._deploy(ref, interval)
        return self._status(ref, report)

    async def served_model(self) -> ServedModel | None:
        """The deployed model, if the workflow's LLM can call it."""
        return self._served

    def log_progress(self, ref: TrainingJobRef, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Append the job's metrics to `nemo_customizer_<run_id>.jsonl`."""
        config = {
            "namespace": self._config.namespace,
            "customization_config": self._config.customization_config,
        }
        facts = {"backend": ref.backend, "config": config, **metrics}
        append_progress("nemo_customizer", ref.run_id, facts, output_dir=output_dir)

    def _dataset(self, collection: TrajectoryCollection) -> Dataset:
        """The run's own files."""
        run_id, seed = collection.run_id, self.run_config.seed
        pairs = pairs_of(collection, whole_history=self._config.use_full_message_history)
        rng = Random(stable_seed(seed, "customizer validation"))
        training, validation = split(pairs, rng)
        counts, kind = (len(pairs), len(training), len(validation)), self._config.hyperparameters.training_type
        logger.info("Converted %d DPO items: %d training, %d validation", *counts)
        name = base = f"{self._config.dataset_name}-{run_id}"
        while name in self._datasets:  # a trainer may submit several jobs in a run
            name = f"{base}-{len(self._datasets) + 1}"
        self._datasets.add(name)
        return Dataset(
            name=name,
            run_id=run_id,
            training=json_lines(training, kind),
            validation=json_lines(validation, kind),
        )

    async def _ended(self, job_id: str, interval: float) -> Report:
        """The job's last report; the job is canceled at the deadline, and with the wait."""
        seconds = self._config.training_timeout_seconds
        try:
            return await until_final(
                lambda: self._service.report(job_id),
                what=f"training job {job_id}",
                seconds=seconds,
                interval=interval,
                max_failures=self._config.max_consecutive_status_failures,
                hint="the job goes on; when the service answers again, take it up with `resume` of the trainer",
            )
        except TimeoutError:
            await cancel_job(self._service, job_id)
            raise TrainingFailed(
                f"training job {job_id} was not done within {seconds:g} s",
                hint="raise `training_timeout_seconds` of the trainer adapter, or train on fewer pairs or epochs",
            ) from None
        except asyncio.CancelledError:
            await cancel_job(self._service, job_id)
            raise

    async def _deploy(self, ref: TrainingJobRef, interval: float) -> None:
        """Deploy the trained model, wait until it is ready, and let the workflow call it."""
        model = (ref.metadata or {}).get("output_model")
        if not model:
            raise BackendError(
                f"training job {job_id_of(ref)} made no model, only files, so nothing can be deployed",
                hint="the service's answer to the job names no output_model; ask who runs the service",
            )
        name = await self._service.deploy(model, ref.run_id)
        seconds = self._config.deployment_timeout_seconds
        try:
            report = await until_final(
                lambda: self._service.deployment(name),
                what=f"deployment {name}",
                seconds=seconds,
                interval=interval,
                max_failures=self._config.max_consecutive_status_failures,
                hint=f"the model {model} is trained; deploy it by hand, or use `resume` of the trainer",
            )
        except TimeoutError:
            raise BackendError(
                f"deployment {name} of {model} was not ready within {seconds:g} s",
                hint="the model is trained; raise `deployment_timeout_seconds`, and use `resume` of the trainer",
            ) from None
        except asyncio.CancelledError:
            tell_the_user(f"Deployment {name} goes on at the service; delete it there if it is not needed")
            raise
        if report.status is not JobStatus.COMPLETED:
            raise BackendError(
                f"deployment {name} of {model} ended as {report.word!r}: {', '.join(report.facts)}",
                hint="check `deployment_config` of the trainer adapter: the image must suit the trained model",
            )
        await self._let_workflow_call(model, report.url, interval)

    async def _let_workflow_call(self, model: str, url: str | None, interval: float) -> None:
        llm = trained_llm(self._llms, self.run_config.target_model)
        for attempt in range(_SERVED_CHECKS):
            found = llm if isinstance(llm, str) else await send_to(model, llm[0], self._llms, self._redirects)
            if isinstance(found, ServedModel):
                self._served, self._no_verdict = found, None
                return
            self._no_verdict = f"{model} is deployed{f' at {url}' if url else ''}, but {found}"
            if attempt + 1 < _SERVED_CHECKS and not isinstance(llm, str):
                await asyncio.sleep(interval)

    def _hindrance(self) -> str | None:
        """Why the workflow will not call the trained model, as far as the configuration decides it."""
        if not self._config.deploy_on_completion:
            return "the trained model is not deployed (deploy_on_completion is false), so the workflow cannot call it"
        found = trained_llm(self._llms, self.run_config.target_model)
        return found if isinstance(found, str) else None

    def _status(self, ref: TrainingJobRef, report: Report) -> TrainingJobStatus:
        facts = ref.metadata or {}
        settings = self._config.hyperparameters.model_dump(mode="json")
        return ref.reported(
            report.status or JobStatus.RUNNING,
            progress=report.progress,
            message=report.sentence,
            nemo_status=report.word,
            policy_version=facts.get("output_model"),
            metrics=report.metrics,
            training={"algorithm": settings["training_type"], "run_id": ref.run_id, **facts, **settings},
        )


@register_trainer_adapter(config_type=NeMoCustomizerTrainerAdapterConfig)
async def nemo_customizer_trainer_adapter(
    config: NeMoCustomizerTrainerAdapterConfig, builder: Builder
) -> AsyncGenerator[NeMoCustomizerTrainerAdapter, None]:
    """Connect to the service, and find the LLMs that may call the trained model."""
    configs = {key: (await builder.get_llm_provider(key)).config for key in builder.llm_names}
    # OpenAI itself serves no models of ours.
    llms = {key: llm for key, llm in configs.items() if isinstance(llm, OpenAIModelConfig) and llm.server_url}
    async with connected(config) as service:
        with redirecting() as redirects:
            yield NeMoCustomizerTrainerAdapter(config, service=service, llms=llms, redirects=redirects)


def _write_copy(folder: Path, dataset: Dataset) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "training_file.jsonl", dataset.training.decode())
    write_text(folder / "validation_file.jsonl", dataset.validation.decode())
