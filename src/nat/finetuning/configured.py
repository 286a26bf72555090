"""The configuration of a run: the YAML, and over it what the command line asks for."""

from pathlib import Path

from nat.config.components import references_of
from nat.config.load import load_config
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.finetuning import FinetuneRunConfig
from nat.errors import ConfigError
from nat.finetuning.checks import check


def configured(given: FinetuneRunConfig) -> tuple[Config, FinetuneRunConfig]:
    """The whole configuration, checked, and the run's own settings.

    Those that the caller set replace the ones under `finetuning.run_configuration`. Without a `target_model`
    the LLM that the adapter trains is the target: what another model said must not be trained on.
    """
    config = _loaded(given)
    given = _over(config.finetuning.run_configuration, given)
    target = config.finetuning.target_model or trained_llm(config)
    finetuning = config.finetuning.model_copy(update={"run_configuration": given, "target_model": target})
    config = config.model_copy(update={"finetuning": finetuning})
    check(config, given)
    return config, given


def trained_llm(config: Config) -> str | None:
    """The LLM that the trainer adapter's configuration refers to; None unless it refers to exactly one."""
    adapter = config.trainer_adapters.get(str(config.finetuning.trainer_adapter))
    refs = references_of(adapter) if adapter is not None else []
    llms = {str(ref) for ref in refs if ref.component_group is ComponentGroup.LLMS}
    return llms.pop() if len(llms) == 1 else None


def _loaded(given: FinetuneRunConfig) -> Config:
    if isinstance(given.config_file, Config):
        return given.config_file
    if isinstance(given.config_file, Path):
        return load_config(given.config_file, given.override)
    raise ConfigError([f"config_file: {given.config_file!r} is neither a path nor a loaded configuration"])


def _over(configured: FinetuneRunConfig | None, given: FinetuneRunConfig) -> FinetuneRunConfig:
    if configured is None:
        return given
    return configured.model_copy(update={name: getattr(given, name) for name in given.model_fields_set})
