"""Check everything about a run that can be checked without training, and plan what it will take."""

import asyncio
from contextlib import AsyncExitStack
from math import ceil
from pathlib import Path
from shutil import disk_usage
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from nat.config.components import references_of
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.evaluate import RayRollouts
from nat.data_models.finetuning import BudgetConfig, FinetuneRunConfig
from nat.errors import ConfigError
from nat.eval.rehearsal import REHEARSING, rehearse
from nat.files import shown
from nat.finetuning.events import Observer, StepBegun
from nat.finetuning.health import check_health
from nat.finetuning.identity import check_resumed, identity_of
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.plan import Plan, resolve
from nat.finetuning.runtime import LOADING, build_stages, warnings_of
from nat.finetuning.stage import Stage
from nat.finetuning.verdict import smallest_improvement
from nat.finetuning.workflow_sessions import opened_remote
from nat.rollout.ray_workers import Workers
from nat.runs.journal import reading
from nat.runs.records import Phase
from nat.sizing.forecast import ForecastRequest, TrainingForecast
from nat.sizing.memory import bytes_text, fitting_text

CHANGED = 0.5
"""Share of the held-out examples that change for better or worse, in an example of what can be shown."""


class FinetunePlan(BaseModel):
    """What a run would do."""

    model_config = ConfigDict(frozen=True)

    trainer: str
    """Type of the component, as in the YAML; likewise the next two."""
    trajectory_builder: str
    trainer_adapter: str
    reward: str | None
    """Key of the evaluator that scores a rollout."""
    target_functions: list[str]
    target_model: str | None
    llms: dict[str, str]
    """Each LLM's key and where it is served."""
    num_epochs: int
    num_examples: int
    num_generations: int | None
    """Rollouts of each example in an epoch; None if the builder does not say."""
    max_concurrency: int
    rollouts: RayRollouts | None = None
    """Where they are played; None for this process or an endpoint."""
    nodes: dict[str, int] = {}
    """How many of these processes have started on each machine, by its address."""
    num_held_out: int | None
    """Examples of the validation dataset; None without one."""
    validation_interval: int | None
    output_dir: Path
    free_disk: int
    """Bytes that are free there."""
    warnings: list[str]
    config_text: str
    """The resolved configuration as YAML, secrets left out."""

    rollouts_per_epoch: int | None
    """None if the builder does not say."""
    judges: list[str]
    """Keys of the evaluators that call a model, once for each rollout."""
    budget: BudgetConfig | None = None
    """Prices of calls, and the limit of what the run may spend."""
    forecast: TrainingForecast | None
    """Settings of an update and its memory; None if the backend does not tell, or the builder not how much it plays."""
    smallest_improvement: float | None
    """Of the mean of 0 and 1 on the held-out examples, that a verdict can show if no example gets worse."""
    smallest_with_changes: float | None
    """Likewise, if half of the examples change for better or worse."""
    finished_epochs: int | None = None
    """Of the run that would go on; null for a new run. All other numbers are those of the whole run."""
    phase: str | None = None
    """Name of the phase of training that this is the plan of; null for a run without phases."""
    phases: "list[FinetunePlan]" = []
    """The plans of the phases of training; the fields beside it are those of the first phase."""

    @model_serializer(mode="wrap")
    def _without_phases(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        absent = {"phase", "phases", "budget", "nodes"} | (
            {"finished_epochs"} if self.finished_epochs is None else set()
        )
        return {name: value for name, value in fields.items() if value or name not in absent}

    @property
    def num_validations(self) -> int:
        """Before, between and after the epochs."""
        return 0 if self.validation_interval is None else 1 + ceil(self.num_epochs / self.validation_interval)

    @property
    def held_out_rollouts(self) -> int:
        return self.num_validations * (self.num_held_out or 0)


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
    plan = await resolve(given)
    if resume is not None:
        identity = await asyncio.to_thread(identity_of, plan)
        check_resumed(resume, plan, identity, accept_changes=accept_changes)
    notes: list[str] = []
    if plan.plays_here:
        observe(StepBegun(REHEARSING))
        notes = await rehearse(plan.config, plan.example, result_json_path=plan.given.result_json_path)
    observe(StepBegun(LOADING))
    async with AsyncExitStack() as stack:
        builder = await stack.enter_async_context(plan.opened())
        remote = await opened_remote(stack, plan, builder)
        nodes = remote.nodes if isinstance(remote, Workers) else {}
        stages = await build_stages(plan, builder)
        for components, stage in zip(stages, plan.stages, strict=True):
            await components.adapter.initialize(stage.finetuning)
            await check_health(components.adapter)
        await builder.probe_llms()
        llms = {name: (await builder.get_llm_provider(name)).description for name in builder.llm_names}
        forecasts = [
            await _forecast(plan, stage, components.adapter)
            for components, stage in zip(stages, plan.stages, strict=True)
        ]
    for forecast in forecasts:
        if forecast is not None and forecast.available is not None and not forecast.fits:
            needed, free = forecast.memory[0], bytes_text(forecast.available)
            seen = f"training {needed.title} takes {bytes_text(needed.total)}, by prediction; {free} are free for it"
            hint = fitting_text(forecast.memory[1:], forecast.available)
            raise ConfigError([f"llms.{', '.join(plan.students)}: {seen}"], hint=hint)
    warnings, held_out = [*notes, *warnings_of(stages, plan)], (plan.num_held_out or 0) - plan.num_copies
    plans = [
        _plan(
            plan,
            stage,
            llms=llms,
            warnings=warnings,
            forecast=forecast,
            nodes=nodes,
            smallest_improvement=smallest_improvement(held_out),
            smallest_with_changes=smallest_improvement(held_out, changed=CHANGED),
        )
        for stage, forecast in zip(plan.stages, forecasts, strict=True)
    ]
    plans[0] = plans[0].model_copy(update={"finished_epochs": _finished(resume)})
    if not plan.finetuning.phases:
        return plans[0]
    once: dict[str, Any] = {
        "num_held_out": None,
        "validation_interval": None,
        "warnings": [],
        "config_text": "",
    }
    of_phases = [plan.model_copy(update=once) for plan in plans]
    return plans[0].model_copy(update={"num_epochs": plan.finetuning.total_epochs, "phases": of_phases})


def _finished(run_dir: Path | None) -> int | None:
    """Epochs that a run has finished."""
    if run_dir is None:
        return None
    with reading(run_dir) as journal:
        return journal.num_epochs()


def _plan(plan: Plan, stage: Stage, **found: Any) -> FinetunePlan:
    """The plan of the run or of a phase; the components and their servers have `found` the rest."""
    config, finetuning, given = plan.config, stage.finetuning, plan.given
    return FinetunePlan(
        phase=finetuning.phase,
        trainer=stage.type_of("trainer"),
        trajectory_builder=stage.type_of("trajectory_builder"),
        trainer_adapter=stage.type_of("trainer_adapter"),
        reward=finetuning.reward_function.name if finetuning.reward_function else None,
        target_functions=finetuning.target_functions,
        target_model=finetuning.target_model,
        num_epochs=finetuning.num_epochs,
        num_examples=plan.num_examples,
        num_generations=stage.num_generations,
        rollouts_per_epoch=plan.num_rollouts(stage).get(Phase.TRAIN),
        max_concurrency=config.eval.general.max_concurrency,
        rollouts=config.finetuning.rollouts,
        num_held_out=plan.num_held_out,
        validation_interval=given.validation_interval if given.validation_dataset else None,
        output_dir=shown(output := finetuning.output_dir),
        free_disk=disk_usage(next(folder for folder in (output, *output.parents) if folder.exists())).free,
        config_text=plan.config_text,
        judges=[
            name
            for name, each in config.eval.evaluators.items()
            if (any(ref.component_group is ComponentGroup.LLMS for ref in references_of(each)))
        ],
        budget=finetuning.budget,
        **found,
    )


async def _forecast(plan: Plan, stage: Stage, adapter: TrainerAdapter) -> TrainingForecast | None:
    """Ask the backend about an epoch; None if it does not tell, or the builder not how much it plays."""
    rollouts = plan.num_rollouts(stage).get(Phase.TRAIN)
    if not rollouts:
        return None
    chats = min(rollouts, plan.config.eval.general.max_concurrency)
    return await adapter.forecast(ForecastRequest(num_rollouts=rollouts, chats=chats))
