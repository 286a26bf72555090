"""Check everything about a run that can be checked without training, and plan what it will take."""

import asyncio
from contextlib import AsyncExitStack
from math import ceil
from pathlib import Path
from shutil import disk_usage

from pydantic import BaseModel, ConfigDict, Field

from nat.config.components import asks_llms
from nat.data_models.finetuning import FinetuneConfig, FinetuneRunConfig
from nat.errors import ConfigError
from nat.eval.dataset import copies
from nat.eval.rehearsal import REHEARSING, rehearse
from nat.finetuning.health import check_health
from nat.finetuning.identity import check_resumed, identity_of
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.plan import Plan, resolve
from nat.finetuning.run_log import Observer, StepBegun
from nat.finetuning.runtime import LOADING, build_stages, warnings_of
from nat.finetuning.stage import Stage
from nat.finetuning.verdict import smallest_improvement
from nat.finetuning.workflow_sessions import opened_remote
from nat.rollout.ray_workers import Workers
from nat.runs.journal import reading
from nat.runs.records import Phase
from nat.sizing.forecast import ForecastRequest, TrainingForecast
from nat.sizing.memory import bytes_text, fitting_text


class PlannedStage(BaseModel):
    """What a phase of training would do, or a run without phases."""

    model_config = ConfigDict(frozen=True)

    phase: str | None
    """Its name; null for a run without phases."""
    trainer: str
    """Type of the component, as in the YAML; likewise the next two."""
    trajectory_builder: str
    trainer_adapter: str
    num_epochs: int
    num_generations: int | None
    """Rollouts of each example in an epoch; null if the builder does not say."""
    rollouts_per_epoch: int | None
    """Likewise."""
    num_validations: int
    """Before, between and after its epochs, as far as the stage before has not played them."""
    forecast: TrainingForecast | None
    """Settings of an update and its memory; null if the backend does not tell, or the builder not how much it plays."""


class FinetunePlan(BaseModel):
    """What a run would do."""

    model_config = ConfigDict(frozen=True)

    stages: list[PlannedStage]
    finetuning: FinetuneConfig = Field(exclude=True)
    """The section; `config_text` has it without secrets."""
    llms: dict[str, str]
    """Each LLM's key and where it is served."""
    num_examples: int
    max_concurrency: int
    nodes: dict[str, int] = {}
    """How many processes of Ray have started on each machine, by its address."""
    num_held_out: int | None
    """Examples of the validation dataset; null without one."""
    validation_interval: int | None
    free_disk: int
    """Bytes that are free in the output folder."""
    judges: list[str]
    """Keys of the evaluators that call a model, once for each rollout."""
    smallest_improvement: float | None
    """Of the mean of 0 and 1 on the held-out examples, that a verdict can show if no example gets worse."""
    finished_epochs: int | None = None
    """Of the run that would go on; null for a new run. All other numbers are those of the whole run."""
    warnings: list[str]
    config_text: str
    """The resolved configuration as YAML, secrets left out."""


async def dry_run(
    given: FinetuneRunConfig,
    *,
    resume: Path | None = None,
    accept_changes: bool = False,
    observe: Observer = lambda _event: None,
) -> FinetunePlan:
    """Read the datasets, play one example with a script, build every component and ask the backend for a forecast.

    With `resume`, a run's folder, the plan is that of going on with it.
    Raises what `run_finetuning` would raise before its first rollout, and ConfigError if training does not fit into the
    memory that is free. Leaves no files.
    """
    plan, finished = await resolve(given), None
    if resume is not None:
        identity = await asyncio.to_thread(identity_of, plan)
        check_resumed(resume, identity, accept_changes=accept_changes)
        with reading(resume) as journal:
            finished = journal.num_epochs()
    notes: list[str] = []
    if plan.plays_here:
        observe(StepBegun(REHEARSING))
        notes = await rehearse(plan.config, plan.training.items[0], result_json_path=plan.given.result_json_path)
    observe(StepBegun(LOADING))
    async with AsyncExitStack() as stack:
        builder = await stack.enter_async_context(plan.opened())
        remote = await opened_remote(stack, plan, builder)
        built = await build_stages(plan, builder)
        for components, stage in zip(built, plan.stages, strict=True):
            await components.adapter.initialize(stage.finetuning)
            await check_health(components.adapter)
        await builder.probe_llms()
        llms = {name: (await builder.get_llm_provider(name)).description for name in builder.llm_names}
        stages = [await _planned(plan, stage, each.adapter) for each, stage in zip(built, plan.stages, strict=True)]
    held_out, folder = () if plan.held_out is None else plan.held_out.items, plan.finetuning.output_dir
    return FinetunePlan(
        stages=stages,
        finetuning=plan.finetuning,
        llms=llms,
        num_examples=len(plan.training.items),
        max_concurrency=plan.config.eval.general.max_concurrency,
        nodes=remote.nodes if isinstance(remote, Workers) else {},
        num_held_out=len(held_out) or None,
        validation_interval=plan.given.validation_interval if held_out else None,
        free_disk=disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free,
        judges=[name for name, each in plan.config.eval.evaluators.items() if asks_llms(each)],
        smallest_improvement=smallest_improvement(len(held_out) - len(copies(held_out))),
        finished_epochs=finished,
        warnings=[*notes, *warnings_of(built, plan)],
        config_text=plan.config_text,
    )


async def _planned(plan: Plan, stage: Stage, adapter: TrainerAdapter) -> PlannedStage:
    """Ask the backend about an epoch of a stage.

    Raises:
        ConfigError: it does not fit into the memory.

    """
    rollouts, epochs, forecast = plan.num_rollouts(stage).get(Phase.TRAIN), stage.finetuning.num_epochs, None
    if rollouts:
        chats = min(rollouts, plan.config.eval.general.max_concurrency)
        forecast = await adapter.forecast(ForecastRequest(num_rollouts=rollouts, chats=chats))
    if forecast is not None and forecast.available is not None and not forecast.fits:
        needed, free = forecast.memory[0], bytes_text(forecast.available)
        seen = f"training {needed.title} takes {bytes_text(needed.total)}, by prediction; {free} are free for it"
        hint = fitting_text(forecast.memory[1:], forecast.available)
        raise ConfigError([f"llms.{', '.join(plan.students)}: {seen}"], hint=hint)
    between = ceil(epochs / plan.given.validation_interval) if plan.held_out else 0
    return PlannedStage(
        phase=stage.finetuning.phase,
        trainer=stage.type_of("trainer"),
        trajectory_builder=stage.type_of("trajectory_builder"),
        trainer_adapter=stage.type_of("trainer_adapter"),
        num_epochs=epochs,
        num_generations=stage.num_generations,
        rollouts_per_epoch=rollouts,
        num_validations=between + (plan.held_out is not None and stage is plan.stages[0]),
        forecast=forecast,
    )
