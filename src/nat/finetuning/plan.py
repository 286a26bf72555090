"""What is decided about a run before anything of it is built: the one value that is made from its configuration."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.load import dump_resolved, load_config
from nat.data_models.config import Config
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.finetuning import FinetuneConfig, FinetuneRunConfig
from nat.errors import BackendError, ConfigError
from nat.eval.dataset import answer_column_warning, check_expected_answers, copies
from nat.eval.dataset_source import load_items, select_dataset
from nat.eval.rehearsal import rehearse
from nat.eval.report import check_writable
from nat.finetuning.plan_rules import (
    check_settings,
    named_targets,
    repeated_examples,
    settings_findings,
    settings_warnings,
    shared_examples,
    unknown_targets,
)
from nat.finetuning.stage import Stage, stages_of, students_of, trained_llm
from nat.rollout.ray_workers import check_installed
from nat.runs.records import Phase
from nat.runs.tracker import tracker_findings


@dataclass(frozen=True)
class Plan:
    """A run whose configuration is resolved and whose datasets can be read."""

    config: Config
    """The YAML with the caller's options, from which components are built; the target model is set if it is known."""
    given: FinetuneRunConfig
    """The caller's options, and for the rest those under `finetuning.run_configuration`."""
    stages: tuple[Stage, ...]
    num_examples: int
    example: EvalInputItem
    """The first one of the training dataset."""
    warnings: tuple[str, ...]
    """Likely mistakes in the settings and the examples, in whole sentences."""
    num_held_out: int | None = None
    """Examples of the validation dataset; None without one."""
    num_copies: int = 0
    """Of these, the ones that repeat others."""
    config_text: str = ""
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
    def trained_llm(self) -> str | None:
        """The LLM that is trained; None if it is not known, or there are several."""
        return trained_llm(self.stages)

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
            Phase.TRAIN: None if stage.builder is None else stage.builder.rollouts_of(self.num_examples),
            Phase.VALIDATION: self.num_held_out,
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
    targets = {"target_model": target, "target_functions": named_targets(config)}
    finetuning = config.finetuning.model_copy(update={"run_configuration": given, **targets})
    return config.model_copy(update={"finetuning": finetuning}), given


async def pinned(config: Config) -> Config:
    """The configuration with models by names that always mean the same weights."""
    llms = {}
    for name, llm in config.llms.items():
        try:
            llms[name] = await asyncio.to_thread(llm.pinned)
        except BackendError as error:
            raise ConfigError([f"llms.{name}: {error.message}"], hint=error.hint) from error
    return config.model_copy(update={"llms": llms})


async def read_examples(
    config: Config, file: str | None, training: Config
) -> tuple[list[EvalInputItem], DatasetBaseConfig]:
    """The examples of the configured dataset or of `file`, checked for what the reward of `training` needs."""
    dataset = select_dataset(config.eval.general.dataset, file)
    async with WorkflowBuilder(eval_general=config.eval.general) as builder:
        items = await load_items(dataset, builder)
    reward = training.finetuning.reward_function
    used = {} if reward is None else {n: e for n, e in config.eval.evaluators.items() if n == reward.name}
    check_expected_answers(items, dataset, used)
    return items, dataset


async def _held_out(config: Config, given: FinetuneRunConfig) -> tuple[list[EvalInputItem], DatasetBaseConfig] | None:
    """The examples of the validations, by the YAML of their own if there is one; None without a validation dataset."""
    if given.validation_dataset is None:
        return None
    other = given.validation_config_file
    return await read_examples(config if other is None else load_config(Path(other)), given.validation_dataset, config)


def check_certain(config: Config, *, source: str) -> list[str]:
    """Raise ConfigError with what keeps a run from starting, whichever files its command line names.

    Returns what the run would warn of for certain, but for an endpoint.
    """
    if not config.finetuning.enabled:
        return []
    config, _ = configured(FinetuneRunConfig(config_file=config))
    with_held_out, without = (settings_findings(config, stages_of(config), held_out=each) for each in (True, False))
    if findings := [each for each in with_held_out if each in without]:
        raise ConfigError(findings, source=source)
    return unknown_targets(config, stages_of(config))


async def tried(config: Config) -> list[str]:
    """Read the files that the configuration names, and play one example with a script as the model.

    Raises:
        NatError: rows, components or their code have a mistake.

    """
    config, given = configured(FinetuneRunConfig(config_file=config))
    for stage in stages_of(config) if config.finetuning.enabled else ():
        if stage.builder is not None:
            stage.builder.check_files()
    await _held_out(config, given)
    example, dataset = None, config.eval.general.dataset
    if given.dataset is not None or (dataset is not None and dataset.file_path is not None):
        [example, *_], _ = await read_examples(config, given.dataset, config)
    return await rehearse(config, example, result_json_path=given.result_json_path)


async def resolve(given: FinetuneRunConfig) -> Plan:
    """Resolve the configuration, check it, and read both datasets.

    Raises:
        ConfigError: the configuration is wrong, or the output folder cannot be written.
        DatasetError: a dataset cannot be read, or lacks the expected answers that the reward needs.

    """
    config, given = configured(given)
    check_settings(config, given, stages_of(config))
    if findings := tracker_findings(config.finetuning.trackers):
        raise ConfigError(findings)
    check_installed(config.finetuning.rollouts)
    config = await pinned(config)
    stages = stages_of(config)
    check_writable(config.finetuning.output_dir, "finetuning.output_dir")
    for stage in stages:
        if stage.builder is not None:
            stage.builder.check_files()
    training = await read_examples(config, given.dataset, config)
    found, num_held_out, num_copies = [answer_column_warning(*training)], None, 0
    if (held_out := await _held_out(config, given)) is not None:
        num_held_out, num_copies = len(held_out[0]), len(copies(held_out[0]))
        found += [answer_column_warning(*held_out), shared_examples(training, held_out)]
        found += [repeated_examples(num_copies, num_held_out)]
    located = config.located()
    return Plan(
        config=located,
        config_text=dump_resolved(config),
        given=located.finetuning.run_configuration or given,
        stages=stages_of(located),
        num_examples=len(training[0]),
        example=training[0][0],
        num_held_out=num_held_out,
        num_copies=num_copies,
        warnings=(*filter(None, found), *settings_warnings(config, given, stages)),
    )
