"""Check everything about a run that can be checked without training."""

from contextlib import AsyncExitStack
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.load import dump_resolved
from nat.data_models.finetuning import FinetuneRunConfig
from nat.finetuning.prepared_run import PreparedRun, num_generations, prepare
from nat.finetuning.runtime import build_components, check_health
from nat.finetuning.workflow_sessions import opened_remote
from nat.runs.records import Phase


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
    advice: dict[str, str] = {}
    """What could be set better, by the key of the LLM whose provider says it."""
    num_epochs: int
    num_examples: int
    num_generations: int | None
    """Rollouts of each example in an epoch; None if the builder does not say."""
    max_concurrency: int
    num_held_out: int | None
    """Examples of the validation dataset; None without one."""
    validation_interval: int | None
    output_dir: Path
    warnings: list[str]
    config_text: str
    """The resolved configuration as YAML, secrets left out."""

    rollouts_per_epoch: int | None
    """None if the builder does not say."""


async def dry_run(given: FinetuneRunConfig) -> FinetunePlan:
    """Resolve the configuration, read the datasets, build every component and ask the backend for its health.

    Raises what `run_finetuning` would raise before its first rollout; leaves no files.
    """
    prepared = await prepare(given)
    config = prepared.config
    config_text = dump_resolved(config)  # before a component can change it
    async with AsyncExitStack() as stack:
        building = WorkflowBuilder.from_config(config, workflow=prepared.given.endpoint is None)
        builder = await stack.enter_async_context(building)
        await opened_remote(stack, prepared, builder)
        components = await build_components(config, builder)
        await components.adapter.initialize(config.finetuning)
        await check_health(components.adapter)
        await builder.probe_llms()
        providers = {name: await builder.get_llm_provider(name) for name in config.llms}
        llms = {name: provider.description for name, provider in providers.items()}
        advice = {name: text for name, provider in providers.items() if (text := await provider.advice())}
        across = components.adapter.compares_across_groups
    return _plan(prepared, llms, advice, across, config_text)


def _plan(
    prepared: PreparedRun, llms: dict[str, str], advice: dict[str, str], across: bool, config_text: str
) -> FinetunePlan:
    config, given, finetuning = prepared.config, prepared.given, prepared.config.finetuning
    return FinetunePlan(
        trainer=config.trainers[str(finetuning.trainer)].type,
        trajectory_builder=config.trajectory_builders[str(finetuning.trajectory_builder)].type,
        trainer_adapter=config.trainer_adapters[str(finetuning.trainer_adapter)].type,
        reward=finetuning.reward_function.name if finetuning.reward_function else None,
        target_functions=finetuning.target_functions,
        target_model=finetuning.target_model,
        llms=llms,
        advice=advice,
        num_epochs=finetuning.num_epochs,
        num_examples=prepared.num_examples,
        num_generations=num_generations(config),
        rollouts_per_epoch=prepared.planned_rollouts.get(Phase.TRAIN),
        max_concurrency=config.eval.general.max_concurrency,
        num_held_out=prepared.num_held_out,
        validation_interval=given.validation_interval if given.validation_dataset else None,
        output_dir=finetuning.output_dir,
        warnings=prepared.warnings(compares_across_groups=across),
        config_text=config_text,
    )
