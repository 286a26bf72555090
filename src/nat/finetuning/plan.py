"""What is decided about a run before anything of it is built: the one value that is made from its configuration."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.load import dump_resolved, load_config
from nat.data_models.config import Config
from nat.data_models.evaluate_runtime import Examples
from nat.data_models.finetuning import FinetuneConfig, FinetuneRunConfig
from nat.errors import BackendError, ConfigError
from nat.eval.dataset import answer_column_warning
from nat.eval.dataset_source import read_examples
from nat.eval.rehearsal import rehearse
from nat.eval.report import check_writable
from nat.finetuning.plan_rules import example_warnings, found, refusals, unknown_targets, warnings
from nat.finetuning.stage import Stage, stages_of, students_of
from nat.finetuning.trajectories.calls import WHOLE_WORKFLOW
from nat.rollout.ray_workers import check_installed
from nat.runs.records import Phase
from nat.runs.tracker import tracker_findings


@dataclass(frozen=True)
class Plan:
    """A run whose configuration is resolved and whose datasets are read."""

    config: Config
    """The YAML with the caller's options, from which components are built; the target model is set if it is known."""
    given: FinetuneRunConfig
    """The caller's options, and for the rest those under `finetuning.run_configuration`."""
    stages: tuple[Stage, ...]
    training: Examples
    held_out: Examples | None
    """None without a validation dataset."""
    validation: Config | None
    """The YAML of the validations, if they have one of their own."""
    warnings: tuple[str, ...]
    """Likely mistakes in the settings and the examples, in whole sentences."""
    config_text: str
    """The configuration as YAML without secrets, as it is recorded."""

    @property
    def finetuning(self) -> FinetuneConfig:
        """The whole section, with all phases."""
        return self.config.finetuning

    @property
    def students(self) -> tuple[str, ...]:
        """The LLMs that are trained, where they are known."""
        return students_of(self.stages)

    @property
    def plays_here(self) -> bool:
        """True if this process plays the rollouts."""
        return self.given.endpoint is None and self.finetuning.rollouts is None

    def opened(self, run_dir: Path | None = None) -> AbstractAsyncContextManager[WorkflowBuilder]:
        """The components of the run, which may write files to `run_dir`; the workflow is among them if it runs here."""
        return WorkflowBuilder.from_config(self.config, run_dir, workflow=self.plays_here)

    def num_rollouts(self, stage: Stage) -> dict[Phase, int]:
        """Rollouts of an epoch and of a validation, where they are known."""
        planned = {
            Phase.TRAIN: None if stage.builder is None else stage.builder.rollouts_of(len(self.training.items)),
            Phase.VALIDATION: None if self.held_out is None else len(self.held_out.items),
        }
        return {phase: count for phase, count in planned.items() if count is not None}


def configured(given: FinetuneRunConfig) -> tuple[Config, FinetuneRunConfig]:
    """The whole configuration and the run's own settings; their finetuning sections are not checked.

    Settings that the caller set replace the ones under `finetuning.run_configuration`. Without a `target_model`
    the LLMs that the adapter trains are the target: answers of other models must not be trained on.
    """
    config: object = given.config_file
    if isinstance(config, Path):
        config = load_config(config, given.override)
    if not isinstance(config, Config):
        raise ConfigError([f"config_file: {config!r} is neither a path nor a loaded configuration"])
    if (own := config.finetuning.run_configuration) is not None:
        given = own.model_copy(update={name: getattr(given, name) for name in given.model_fields_set})
    target = config.finetuning.target_model or ", ".join(students_of(stages_of(config))) or None
    names = {config.workflow.type, config.workflow.name} - config.functions.keys()
    functions = [WHOLE_WORKFLOW if name in names else name for name in config.finetuning.target_functions]
    changes = {"run_configuration": given, "target_model": target, "target_functions": functions}
    return config.model_copy(update={"finetuning": config.finetuning.model_copy(update=changes)}), given


def check_certain(config: Config, *, source: str) -> list[str]:
    """Raise ConfigError with what keeps a run from starting, whichever files its command line names.

    Returns what the run would warn of for certain, but for an endpoint.
    """
    if not config.finetuning.enabled:
        return []
    config, _ = configured(FinetuneRunConfig(config_file=config))
    stages = stages_of(config)
    with_held_out, without = (found(refusals(config, stages, held_out=each)) for each in (True, False))
    if findings := [each for each in with_held_out if each in without]:
        raise ConfigError(findings, source=source)
    return found(unknown_targets(config))


async def tried(config: Config) -> list[str]:
    """Read the files that the configuration names, and play one example with a script as the model.

    Raises:
        NatError: rows, components or their code have a mistake.

    """
    config, given = configured(FinetuneRunConfig(config_file=config))
    if config.finetuning.enabled:
        _check_files(stages_of(config))
    await _held_out(config, given)
    example, dataset = None, config.eval.general.dataset
    if given.dataset is not None or (dataset is not None and dataset.file_path is not None):
        example = (await examples_of(config, given.dataset)).items[0]
    return await rehearse(config, example, result_json_path=given.result_json_path)


async def resolve(given: FinetuneRunConfig) -> Plan:
    """Resolve the configuration, check it, and read both datasets.

    Raises:
        ConfigError: the configuration is wrong, or the output folder cannot be written.
        DatasetError: a dataset cannot be read, or lacks the expected answers that evaluators need.

    """
    config, given = configured(given)
    source = str(given.config_file) if isinstance(given.config_file, Path) else "configuration"
    if not config.finetuning.enabled:
        seen = "finetuning.enabled: Finetuning is not enabled in the provided configuration."
        raise ConfigError([seen], source=source, hint="set `finetuning.enabled: true`")
    has_held_out = given.validation_dataset is not None
    if findings := found(refusals(config, stages_of(config), held_out=has_held_out)):
        raise ConfigError(findings, source=source)
    if findings := tracker_findings(config.finetuning.trackers):
        raise ConfigError(findings)
    check_installed(config.finetuning.rollouts)
    llms = {}
    for name, llm in config.llms.items():
        try:
            llms[name] = await asyncio.to_thread(llm.pinned)  # names that always mean the same weights
        except BackendError as error:
            raise ConfigError([f"llms.{name}: {error.message}"], hint=error.hint) from error
    config = config.model_copy(update={"llms": llms})
    config_text, config = dump_resolved(config), config.located()
    given, stages = config.finetuning.run_configuration or given, stages_of(config)
    check_writable(config.finetuning.output_dir, "finetuning.output_dir")
    _check_files(stages)
    training = await examples_of(config, given.dataset)
    validation, held_out = await _held_out(config, given)
    about_examples = [answer_column_warning(each.items, each.dataset) for each in (training, held_out) if each]
    return Plan(
        config=config,
        given=given,
        stages=stages,
        training=training,
        held_out=held_out,
        validation=validation,
        warnings=(
            *filter(None, about_examples),
            *(found(example_warnings(training, held_out)) if held_out else ()),
            *found(warnings(config, stages, held_out=has_held_out)),
        ),
        config_text=config_text,
    )


async def examples_of(config: Config, file: str | None) -> Examples:
    """The examples of the configured dataset, or those of `file`."""
    return await read_examples(config.eval, file, WorkflowBuilder(eval_general=config.eval.general))


async def _held_out(config: Config, given: FinetuneRunConfig) -> tuple[Config | None, Examples | None]:
    """The validations' own YAML, if there is one, and their examples; nothing without a validation dataset."""
    if given.validation_dataset is None:
        return None, None
    other = given.validation_config_file
    validation = None if other is None else load_config(Path(other)).located()
    return validation, await examples_of(validation or config, given.validation_dataset)


def _check_files(stages: tuple[Stage, ...]) -> None:
    for stage in stages:
        if stage.builder is not None:
            stage.builder.check_files()
