"""The trainer adapter that trains on an ART server: one training call per epoch."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any
from uuid import uuid4

from nat.art.client.client import ArtClient
from nat.art.client.config import ARTTrainerAdapterConfig, ARTTrainingConfig
from nat.art.client.session import ArtSession
from nat.art.client.trajectories import art_groups
from nat.art.wire import NEW_STEPS, STEPS, TRAINED_GROUPS, TRAINED_TOKENS
from nat.builder.builder import Builder
from nat.capture.context import Redirects, redirecting
from nat.data_models.finetuning import (
    FinetuneConfig,
    ServedModel,
    TrainingJobRef,
    TrainingJobStatus,
    TrajectoryCollection,
)
from nat.data_models.llm import ModelEndpoint
from nat.data_models.score import is_finite
from nat.errors import BackendError, ConfigError, NatError, describe_error
from nat.finetuning.interfaces.trainer_adapter import CheckpointKeeper, KeptCheckpoint, TrainerAdapter, check_ready
from nat.finetuning.progress import append_progress
from nat.finetuning.run_log import current_run
from nat.registry.decorators import register_trainer_adapter
from nat.runs.records import JobRecord
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

BACKEND_NAME = "openpipe-art"
Report = Callable[[dict[str, Any]], None]
"""Receives the metrics of a gradient step."""
Work = Callable[[Report], Coroutine[Any, Any, str | None]]
"""Trains and returns the name of the new weights."""
_TRAINED = {"trained_groups": TRAINED_GROUPS, "trained_tokens": TRAINED_TOKENS}
"""Metrics that every backend reports, and their names on an ART server."""


class ArtJob:
    """Runs `work` at once; never raises."""

    def __init__(self, ref: TrainingJobRef, work: Work, *, seconds: float, done: str | None = None) -> None:
        """`done` says how a job without gradient steps has trained; by default it has not."""
        self.ref = ref
        self._without_steps = done
        self._lines: list[dict[str, float]] = []
        self._seconds = seconds
        self._final: TrainingJobStatus | None = None
        self.task = asyncio.create_task(self._run(work), name=f"training of {ref.run_id}")

    @property
    def status(self) -> TrainingJobStatus:
        """The current status; of a job that has ended, the final one."""
        if self._final is not None:
            return self._final
        if self.task.done():  # it was canceled before it began
            return self._make_status(JobStatus.CANCELED, "Training was canceled.")
        planned = max((line[name] for line in self._lines for name in (STEPS, NEW_STEPS) if name in line), default=0.0)
        progress = min(100.0, 100.0 * len(self._lines) / planned) if planned else 0.0
        return self._make_status(JobStatus.RUNNING, "Training is in progress.", progress=progress)

    async def end(self) -> TrainingJobStatus:
        """Wait for the end; canceling the wait does not cancel the job."""
        await asyncio.wait([self.task])
        return self.status

    async def cancel(self) -> TrainingJobStatus:
        """Close the stream, which tells the server to stop."""
        self.task.cancel()
        return await self.end()

    async def _run(self, work: Work) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                version = await work(self._add)
        except asyncio.CancelledError:
            self._final = self._make_status(JobStatus.CANCELED, "Training was canceled.")
            raise
        except TimeoutError:
            text = f"it was not done within {self._seconds:.0f} s (`timeout` of the trainer adapter)"
            self._final = self._make_status(JobStatus.FAILED, f"Training failed with error: {text}")
        except Exception as error:  # noqa: BLE001 - the boundary of one job: its failure becomes its status
            reason = str(error) if isinstance(error, NatError) else describe_error(error)
            self._final = self._make_status(JobStatus.FAILED, f"Training failed with error: {reason}")
        else:
            self._final = self._done(version)

    def _add(self, line: dict[str, Any]) -> None:
        """Keep the finite numbers of a gradient step; servers send NaN for a metric that they do not have."""
        self._lines.append({name: float(v) for name, v in line.items() if is_finite(v)})

    def _done(self, version: str | None) -> TrainingJobStatus:
        steps = sum(bool(line.get(STEPS, line.get(NEW_STEPS, 1))) for line in self._lines)
        text = self._without_steps or "Training completed successfully."
        metrics = mean_metrics(self._lines)
        trained = {name: metrics[theirs] for name, theirs in _TRAINED.items() if theirs in metrics}
        if not (steps or self._without_steps):
            text += " The server found nothing to train on and made no gradient step."
            trained = dict.fromkeys(_TRAINED, 0.0)
        return self._make_status(
            JobStatus.COMPLETED, text, progress=100.0, policy_version=version, metrics=metrics | trained
        )

    def _make_status(
        self, status: JobStatus, message: str, *, progress: float | None = None, **facts: Any
    ) -> TrainingJobStatus:
        metrics = {"metrics": mean_metrics(self._lines)}
        return self.ref.reported(status, progress=progress, message=message, **(metrics | facts))


def mean_metrics(lines: list[dict[str, float]]) -> dict[str, float]:
    """Each metric's mean over the gradient steps that have it."""
    names = dict.fromkeys(name for line in lines for name in line)
    return {name: fmean(line[name] for line in lines if name in line) for name in names}


class ARTTrainerAdapter(TrainerAdapter, CheckpointKeeper):
    """Each training call runs in a task of its own, whose status can be read any number of times."""

    drops_equal_groups = True  # as ART's servers do

    def __init__(
        self,
        adapter_config: ARTTrainerAdapterConfig,
        *,
        llms: Mapping[str, ModelEndpoint] | None = None,
        redirects: Redirects | None = None,
    ) -> None:
        """Connect on `initialize`; `close` closes the connections.

        Args:
            llms: Those of the YAML, so that their requests are redirected to the trained model; None if they are not
                known, and the workflow calls the trained model by itself.
            redirects: Takes the redirects of these LLMs.

        """
        super().__init__(adapter_config)
        self._config = adapter_config
        training, backend = adapter_config.training or ARTTrainingConfig(), adapter_config.backend
        self._client = ArtClient(backend.base_url, backend.api_key.get_secret_value())
        redirects = redirects or Redirects()
        self._session = ArtSession(backend, training, client=self._client, llms=llms, redirects=redirects)
        self._jobs: dict[str, ArtJob] = {}

    @property
    def training_jobs(self) -> Mapping[str, asyncio.Task[None]]:
        """The newest task of each run id."""
        return {job.ref.run_id: job.task for job in self._jobs.values()}

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Register the model and redirect the workflow's requests to it.

        Raises:
            BackendUnreachable: no healthy ART server answers at the configured address.
            ConfigError: no LLM of the configuration asks this server, `reward_function.credit` gives each answer a
                reward of its own, or `max_staleness` allows answers of earlier weights that nothing corrects for.

        """
        reward = run_config.reward_function
        if reward is not None and reward.credit != "outcome":
            raise ConfigError(
                [f"finetuning.reward_function.credit: '{reward.credit}', but ART takes one reward per rollout"],
                hint="use `credit: outcome`, or train with `local_trainer_adapter`, which compares answer by answer",
            )
        _check_correction(self._config.training or ARTTrainingConfig(), run_config.max_staleness)
        await super().initialize(run_config)
        replaced = run_config.sampling_in_training is not None
        await self._session.connect(run_config.target_model, sampling_replaced=replaced)

    def warnings(self) -> Sequence[str]:
        return self._session.warnings

    async def is_healthy(self) -> bool:
        try:
            await self._session.check()
        except BackendError as error:
            logger.warning("%s", error)
            return False
        return True

    async def submit(self, trajectories: TrajectoryCollection) -> TrainingJobRef:
        """Begin an update in the background.

        Raises:
            InvalidTrajectories: one is not a conversation, or none has answers that can be trained on.
            ValueError: an update under this run id is in progress.

        """
        check_ready(self, self.run_config)
        run_id = trajectories.run_id
        if any(job.ref.run_id == run_id and not job.task.done() for job in self._jobs.values()):
            raise ValueError(f"Training of {run_id} is already in progress.")
        groups, left_out = art_groups(trajectories, trained=self._session.trained_names)
        for reason in left_out:
            logger.warning("A trajectory is left out: %s", reason)
        job_id, now = trajectories.job_id or f"{run_id}-{uuid4().hex[:8]}", await self._session.version()
        # An ART server knows no jobs, and trains one twice: the journal has the weights with which the run began it.
        run = current_run()
        jobs = [] if run is None else run.journal.each(JobRecord, run.journal.num_epochs())
        begun = next((job for job in jobs if job.id == job_id), None)
        before = (begun and begun.began_with) or now
        ref = TrainingJobRef(run_id=run_id, backend=BACKEND_NAME, metadata={"job_id": job_id, "began_with": before})

        async def work(report: Report) -> str:
            return await self._session.train(groups, report)

        async def known(_: Report) -> str:
            return now

        if now == before:
            job = ArtJob(ref, work, seconds=self._config.timeout)
        else:
            logger.warning("%s was trained before the run ended: the server has %s, not %s", job_id, now, before)
            job = ArtJob(ref, known, seconds=self._config.timeout, done=f"Trained from {before} before the run ended.")
        self._jobs[job_id] = job
        return ref

    async def status(self, ref: TrainingJobRef) -> TrainingJobStatus:
        return self._job(ref).status

    async def wait_until_complete(self, ref: TrainingJobRef, poll_interval: float = 10.0) -> TrainingJobStatus:
        """Wait for the end of the stream; canceling the wait cancels the job."""
        job = self._job(ref)
        try:
            return await job.end()
        finally:
            await job.cancel()

    async def cancel(self, ref: TrainingJobRef) -> TrainingJobStatus:
        """Close the job's stream, unless it has ended."""
        return await self._job(ref).cancel()

    async def close(self) -> None:
        """Cancel the jobs that still run, and close what the adapter opened; may be called at any time, and again."""
        for job in self._jobs.values():
            await job.cancel()
        await self._client.close()

    async def keep_best(self) -> KeptCheckpoint:
        """Keep the newest step of the model when old checkpoints are deleted on the server."""
        return KeptCheckpoint(name=await self._session.keep_best())

    async def export_best(self, name: str) -> Path | None:
        return None

    async def served_model(self) -> ServedModel | None:
        """The model on the ART server, under the name of its last step."""
        return await self._session.served_model()

    def log_progress(self, ref: TrainingJobRef, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Append the job's metrics to `trainer_adapter_<run_id>.jsonl`."""
        backend = self._config.backend
        trained = {"base_model": backend.base_model, "project": backend.project, "name": backend.name}
        facts = {"backend": ref.backend, "trainer_config": trained, **metrics}
        append_progress("trainer_adapter", ref.run_id, facts, output_dir=output_dir)

    def _job(self, ref: TrainingJobRef) -> ArtJob:
        """The job with the reference's job id, or else the newest of the run."""
        if ref.job_id is None:
            found = [job for job in self._jobs.values() if job.ref.run_id == ref.run_id]
        else:
            found = [job for key, job in self._jobs.items() if key == ref.job_id]
        if not found:
            raise ValueError(f"No training job found with run_id {ref.run_id}")
        return found[-1]


def _check_correction(training: ARTTrainingConfig, max_staleness: int) -> None:
    """By default the ratio compares with the sampler's log probabilities, which is a correction."""
    if max_staleness and training.precalculate_logprobs and training.truncated_importance_sampling is None:
        seen = f"true, so nothing corrects for earlier weights, which finetuning.max_staleness {max_staleness} allows"
        raise ConfigError(
            [f"training.precalculate_logprobs: {seen}"],
            hint="set truncated_importance_sampling to a cap such as 2.0, precalculate_logprobs to false, or "
            "max_staleness to 0",
        )


@register_trainer_adapter(config_type=ARTTrainerAdapterConfig)
async def openpipe_art_trainer_adapter(
    config: ARTTrainerAdapterConfig, builder: Builder
) -> AsyncGenerator[ARTTrainerAdapter, None]:
    """Create the adapter of a running ART server."""
    configs = {key: (await builder.get_llm_provider(key)).config for key in builder.llm_names}
    # Those without such an endpoint cannot call an ART server.
    llms = {key: found for key, config in configs.items() if (found := config.openai_endpoint) is not None}
    with redirecting() as redirects:
        adapter = ARTTrainerAdapter(config, llms=llms, redirects=redirects)
        try:
            yield adapter
        finally:
            await adapter.close()
