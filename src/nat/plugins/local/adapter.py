"""Training in the embedded backend: the adapter, and the generic builder and trainer under its names."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from uuid import uuid4

from pydantic import Field, JsonValue, ValidationInfo, field_serializer, field_validator

from nat.builder.builder import Builder
from nat.data_models.component_ref import LLMRef, UntrainedLLMRef
from nat.data_models.finetuning import (
    FinetuneConfig,
    TrainerAdapterConfig,
    TrainerConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrainingStatusEnum,
    TrajectoryCollection,
)
from nat.errors import BackendError, BackendUnreachable, ConfigError
from nat.files import remove_unfinished
from nat.finetuning.interfaces.trainer_adapter import (
    CheckpointKeeper,
    KeptCheckpoint,
    Recipe,
    SendsAgain,
    TakesOver,
    TrainerAdapter,
)
from nat.finetuning.progress import append_progress
from nat.finetuning.run_log import current_run
from nat.finetuning.trainer import EpochTrainer
from nat.finetuning.trajectories.rows import training_groups
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilder, EvalTrajectoryBuilderConfig
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.local.client import BackendClient
from nat.plugins.local.export import export_checkpoint, move_export
from nat.plugins.local.llm import LocalModelConfig, LocalProviderInfo
from nat.plugins.local.process import BackendProcess
from nat.plugins.local.texts import has_texts, tokenized_groups
from nat.registry.decorators import from_config, register_trainer, register_trainer_adapter, register_trajectory_builder
from nat.runs.journal import JOURNAL_NAME, Journal
from nat.runs.records import BestEpoch
from nat.sizing.forecast import ForecastRequest, TrainingForecast
from nat.wire.training import (
    JobState,
    JobStatus,
    ResolvedTraining,
    TrainingConfig,
    TrainingGroup,
    TrainingJob,
)

if TYPE_CHECKING:
    from nat.plugins.local.teacher import Teacher

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=TrainerAdapter)
BACKEND_NAME = "local"
LEARNS_FROM_LABELS = "kto"
_CANCEL_SECONDS = 3.0


class LocalTrainerAdapterConfig(TrainerAdapterConfig, name="local_trainer_adapter"):
    """Trains a `local` LLM in the backend that serves it."""

    usual_trajectory_builder = "local_traj_builder"
    usual_trainer = "local_trainer"
    trains: ClassVar[type[LocalModelConfig]] = LocalModelConfig
    """The type of LLM, or another one with the same usual adapter."""

    llm: LLMRef
    """Key of the `local` LLM to train."""
    training: TrainingConfig = TrainingConfig()
    """The algorithm of an update, and its settings."""
    teacher: UntrainedLLMRef | None = None
    """Key of the LLM that `algorithm: distill` imitates. Its server must give log probabilities of prompts, as vLLM and
    the embedded backend do, and its tokenizer must be the same."""
    timeout: float = Field(default=3600.0, gt=0)
    """Seconds that an update may take."""

    @field_validator("teacher")
    @classmethod
    def _is_another(cls, teacher: UntrainedLLMRef | None, known: ValidationInfo) -> UntrainedLLMRef | None:
        if teacher is not None and teacher == known.data.get("llm"):
            raise ValueError(f"'{teacher}' is the student itself; name another LLM")
        return teacher

    @field_serializer("training")
    def _without_defaults(self, training: TrainingConfig) -> dict[str, JsonValue]:
        """Only what the user set: written out, a general default would replace that of the algorithm."""
        return {"algorithm": training.algorithm, **training.model_dump(mode="json", exclude_unset=True)}


class LocalTrainerAdapter(TrainerAdapter, CheckpointKeeper, TakesOver, SendsAgain):
    """One training job per epoch; a job that is sent twice is trained once."""

    drops_equal_groups = True

    def __init__(
        self,
        adapter_config: LocalTrainerAdapterConfig,
        *,
        client: BackendClient,
        backend: BackendProcess,
        teacher: "Teacher | None" = None,
        folder: Path | None = None,
    ) -> None:
        """`folder` is the backend's output folder."""
        super().__init__(adapter_config)
        self._folder = folder
        self._config = adapter_config
        self._client = client
        self._backend = backend
        self._teacher = teacher
        self._training: ResolvedTraining | None = None

    @property
    def _journal(self) -> Journal | None:
        """It keeps batches until two checkpoints have them; None if the checkpoints are not the run's."""
        run = current_run()
        return None if run is None or self._folder is None else run.journal

    async def take_over(self, previous: TrainerAdapter) -> None:
        """Begin anew with these settings, on the weights of another adapter of the same LLM."""
        await self._client.begin_phase(self._config.training)
        if (journal := self._journal) is not None:
            journal.forget_batches(self._config.llm, journal.batches(self._config.llm)[:-1])

    async def send_again(self, completed: Sequence[str]) -> None:
        """Have the backend train what its checkpoint lacks, each update once and in order.

        Raises:
            BackendError: batches are gone, or an update failed.

        """
        if (journal := self._journal) is None:
            return
        newest, kept = (await self._client.saved()).newest, journal.batches(self._config.llm)
        lacking = [each for each in kept if (newest or "") < each and each.startswith(tuple(completed))]
        if len(lacking) < len(completed) if newest is None else bool(kept) and newest < kept[0]:
            raise BackendError(
                f"the newest undamaged checkpoint in {self._folder} has the weights of {newest or 'no update'}, and "
                f"the batches of the updates after it are gone from {journal.run_dir / JOURNAL_NAME}",
                hint="restore the run's folder from a copy, or start anew",
            )
        for job_id in lacking:
            logger.info("The checkpoint lacks the update %s: its batch is trained again", job_id)
            if (job := journal.batch(self._config.llm, job_id)) is not None:
                await self._send(job.model_copy(update=self._more_of_job()))
            ref = TrainingJobRef(run_id=job_id, backend=BACKEND_NAME, metadata={"job_id": job_id})
            status = await self.wait_until_complete(ref)
            if status.status is not TrainingStatusEnum.COMPLETED:
                raise BackendError(f"the update {job_id}, trained again, {status.status}: {status.message}")

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Have the backend resolve the settings, so that an unknown algorithm fails before the first rollout.

        Raises:
            BackendError: the algorithm is unknown or broken, or contradicts the settings.
            ConfigError: `max_staleness` allows answers of earlier weights, and nothing corrects for them; or the
                algorithm lacks a teacher, has one that it does not ask, or one of another vocabulary.

        """
        await super().initialize(run_config)
        if await self.is_healthy():  # the health check reports an unreachable backend
            self._training = await self._client.resolve(self._config.training)
            self.recipe = Recipe(compares=self._training.compares, only_samples=self._training.only_samples)
            _check_correction(self._training, run_config.max_staleness)
            await self._check_teacher(self._training)
            logger.info("Training with the algorithm %s (%s)", self._training.algorithm, self._training.paper)

    async def forecast(self, request: ForecastRequest) -> TrainingForecast | None:
        return await self._client.forecast(request.model_copy(update={"config": self._config.training}))

    async def is_healthy(self) -> bool:
        return self._backend.alive and await self._client.healthy()

    async def submit(self, trajectories: TrajectoryCollection) -> TrainingJobRef:
        """Queue an update.

        Raises:
            BackendError: no trajectory has exact tokens, or the backend refuses the batch.
            BackendUnreachable: the backend is dead; with the tail of its log.

        """
        groups, config = await self._groups(trajectories), self._config.training
        config = config.model_copy(update={"algorithm": config.algorithm})  # is set in the record, too
        of_teacher: dict[str, Any] = {}
        if self._teacher is not None:
            scored = await self._teacher.scored(groups)
            groups = scored.groups
            of_teacher = {"metrics": scored.metrics, "usage": {"teacher": scored.usage}}
        config = with_labels(config, groups)
        job = TrainingJob(
            id=trajectories.job_id or f"{trajectories.run_id}-{uuid4().hex[:8]}",
            groups=groups,
            config=config,
            **self._more_of_job(),
            **({"stale": True} if self.run_config.max_staleness else {}),  # a default is not sent
        )
        if (journal := self._journal) is not None and trajectories.job_id is not None:
            journal.keep_batch(self._config.llm, job, needed_from=(await self._client.saved()).fallback)
        await self._send(job)
        metadata = {"job_id": job.id, **of_teacher}
        return TrainingJobRef(run_id=trajectories.run_id, backend=BACKEND_NAME, metadata=metadata)

    async def _send(self, job: TrainingJob) -> None:
        try:
            await self._client.submit(job)
        except BackendUnreachable:
            self._backend.check()
            await self._client.submit(job)

    def _status(self, ref: TrainingJobRef, state: JobState) -> TrainingJobStatus:
        failure = state.failure
        return ref.reported(
            state.status,
            progress=state.progress,
            message=None if failure is None else f"{failure.message}\n  → {failure.hint}",
            metrics=(ref.metadata or {}).get("metrics", {}) | state.metrics,
            steps=state.steps,
            training=None if state.training is None else state.training.model_dump(),
            policy_version=state.policy_version,
            failure=None if failure is None else failure.model_dump(),
        )

    def _more_of_job(self) -> dict[str, Any]:
        """Further fields of a job; none here."""
        return {}

    async def _check_teacher(self, training: ResolvedTraining) -> None:
        if training.needs_teacher and self._teacher is None:
            raise ConfigError(
                [f"trainer adapter: no teacher, which the algorithm {training.algorithm!r} imitates"],
                hint="set `teacher` to the key of an LLM with the same tokenizer, served by vLLM or of type local",
            )
        if self._teacher is None:
            return
        if not training.needs_teacher:
            raise ConfigError(
                [f"trainer adapter: teacher '{self._config.teacher}' has no effect with {training.algorithm!r}"],
                hint="set `algorithm: distill` under `training`, or remove `teacher`",
            )
        await self._teacher.check(self._client.detokenize, (await self._client.health()).vocabulary)

    async def _groups(self, trajectories: TrajectoryCollection) -> list[TrainingGroup]:
        if has_texts(trajectories):
            return await tokenized_groups(trajectories, self._client)
        return training_groups(trajectories, model=self._config.llm)

    async def status(self, ref: TrainingJobRef) -> TrainingJobStatus:
        return self._status(ref, await self._state(ref))

    async def wait_until_complete(self, ref: TrainingJobRef, poll_interval: float = 10.0) -> TrainingJobStatus:
        """Wait for the final state; the backend answers as soon as it is there, at the latest after `poll_interval`."""
        try:
            async with asyncio.timeout(self._config.timeout):
                while True:
                    state = await self._state(ref, wait=poll_interval)
                    if state.status.final:
                        if (journal := self._journal) is not None and state.status is not JobStatus.COMPLETED:
                            journal.forget_batches(self._config.llm, [state.id])
                        return self._status(ref, state)
        except TimeoutError:
            raise BackendError(
                f"the update {ref.job_id} was not done within {self._config.timeout:.0f} s",
                hint="raise `timeout` of the trainer adapter, or train on fewer rollouts per epoch",
            ) from None
        except asyncio.CancelledError:
            with suppress(BackendError, TimeoutError):  # a backend that does not answer is stopped soon anyway
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await self._client.cancel(str(ref.job_id))
            raise

    async def export_model(self, name: str) -> Path:
        """Write the trained model as a Hugging Face directory `name` in the run's folder.

        Raises:
            BackendError: something that is not an exported model has this name.

        """
        return move_export(Path((await self._client.export(name)).path))

    async def keep_best(self) -> KeptCheckpoint:
        """Keep a checkpoint of the current weights in the run's folder."""
        saved = await self._client.keep_best()
        return KeptCheckpoint(name=saved.policy_version, path=saved.path)

    async def export_best(self, name: str) -> Path | None:
        """Write the checkpoint that is kept as a Hugging Face directory `name` in the run's folder.

        Raises:
            BackendError: it is damaged, or something that is not an exported model has this name.

        """
        run = current_run()
        best = None if run is None else run.journal.find(BestEpoch)
        if run is None or best is None:
            return None
        folder = self._folder or run.journal.run_dir
        found = (run.journal.run_dir / each for each in (best.checkpoint, *best.others) if each is not None)
        own = [each for each in found if each.resolve().is_relative_to(folder.resolve())]
        if not own:  # a journal of others may name a private model
            return None
        try:
            return await self._write_best(own[0], folder / name)
        except asyncio.CancelledError:  # the process was killed while it wrote
            remove_unfinished(folder)
            raise

    async def _write_best(self, kept: Path, target: Path) -> Path | None:
        return await export_checkpoint(kept, target)

    def log_progress(self, ref: TrainingJobRef, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Append the job's metrics to `trainer_adapter_<run_id>.jsonl`."""
        append_progress("trainer_adapter", ref.run_id, {"backend": ref.backend, **metrics}, output_dir=output_dir)

    async def _state(self, ref: TrainingJobRef, *, wait: float = 0.0) -> JobState:
        try:
            return await self._client.job(str(ref.job_id), wait=wait)
        except BackendUnreachable:
            self._backend.check()
            raise


def with_backend(make: Callable[..., A]) -> Callable[[Any, Builder], AsyncGenerator[A, None]]:
    """The build function of an adapter that trains in the process that serves the model."""

    async def build(config: LocalTrainerAdapterConfig, builder: Builder) -> AsyncGenerator[A, None]:
        provider = await trained_provider(config, builder)
        backend = provider.backend
        async with BackendClient(backend.base_url, backend.api_key) as client, AsyncExitStack() as stack:
            teacher = None
            if config.teacher is not None:
                from nat.plugins.local.teacher import Teacher

                served = (await builder.get_llm_provider(config.teacher)).config
                if not isinstance(served, OpenAIModelConfig) or served.server_url is None:
                    raise ConfigError(
                        [f"trainer adapter: teacher '{config.teacher}' is no server of yours that could score prompts"],
                        hint="name an LLM of the type local, or of the type openai with the base_url of a vLLM server",
                    )
                teacher = await stack.enter_async_context(Teacher(served, llm_name=config.teacher))
            yield make(config, client=client, backend=backend, teacher=teacher, folder=provider.folder)

    return build


async def trained_provider(config: LocalTrainerAdapterConfig, builder: Builder) -> LocalProviderInfo:
    """The LLM to train, and the process that serves it.

    Raises:
        ConfigError: the LLM is of another type.

    """
    provider = await builder.get_llm_provider(config.llm)
    served = builder.get_llm_config(config.llm)
    wanted = config.trains
    if not isinstance(provider, LocalProviderInfo) or served.usual_trainer_adapter != wanted.usual_trainer_adapter:
        of_type = wanted.static_type()
        seen = f"is of type '{served.static_type()}', but {config.static_type()} trains '{of_type}' LLMs"
        raise ConfigError(
            [f"llms.{config.llm}: {seen}"],
            hint=f"name an LLM of the type {of_type}, or use the adapter of the server that holds the model",
        )
    return provider


def _check_correction(training: ResolvedTraining, max_staleness: int) -> None:
    settings = training.settings
    has_ratio = settings.get("old_logprobs") == "learner"  # else the ratio corrects, or there is none to correct
    if max_staleness and has_ratio and settings["importance_sampling_cap"] is None:
        seen = f"null, so nothing corrects for earlier weights, which finetuning.max_staleness {max_staleness} allows"
        raise ConfigError(
            [f"training.importance_sampling_cap: {seen}"], hint="set a cap such as 2.0, or max_staleness to 0"
        )


def with_labels(config: TrainingConfig, groups: Sequence[TrainingGroup]) -> TrainingConfig:
    """The settings for these groups, whose rollouts may be desirable or not by themselves."""
    if groups[0].rollouts[0].advantage is None:
        return config
    if config.algorithm != LEARNS_FROM_LABELS:
        raise ConfigError(
            [f"training.algorithm: {config.algorithm!r} compares answers to one prompt; the rows have labels instead"],
            hint=f"set algorithm: {LEARNS_FROM_LABELS}, or give rows with rewards or with chosen and rejected answers",
        )
    return config.model_copy(update={"advantage": "given"})


class LocalTrajectoryBuilderConfig(EvalTrajectoryBuilderConfig, name="local_traj_builder"):
    """Plays the epoch's examples `num_generations` times and groups the rollouts by example."""

    num_generations: int = Field(default=8, ge=1)
    """Rollouts of each example per epoch; training compares their rewards, so 1 gives no signal."""
    examples_per_epoch: int | None = Field(default=16, ge=1)
    """Examples that an epoch plays; null plays the whole dataset."""


class LocalTrainerConfig(TrainerConfig, name="local_trainer"):
    """Trains epoch after epoch; its options are those of `finetuning`."""


register_trainer_adapter(config_type=LocalTrainerAdapterConfig)(with_backend(LocalTrainerAdapter))
register_trajectory_builder(config_type=LocalTrajectoryBuilderConfig)(from_config(EvalTrajectoryBuilder))
register_trainer(config_type=LocalTrainerConfig)(from_config(EpochTrainer))
