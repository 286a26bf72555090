"""The phases of a run: the configuration of each, and settings that do not go together. Pure."""

from collections.abc import Sequence

from nat.config.components import trained_llms
from nat.data_models.config import Config
from nat.data_models.finetuning import TrajectoryBuilderConfig


def builder_of(config: Config) -> TrajectoryBuilderConfig | None:
    """The configuration of the run's trajectory builder, if it is set."""
    return config.trajectory_builders.get(str(config.finetuning.trajectory_builder))


def trained_llm(config: Config) -> str | None:
    """The LLM that the trainer adapters of the run refer to; None unless they refer to exactly one."""
    llms = {trained_by(config, str(own.trainer_adapter)) for own in config.finetuning.each_phase}
    return llms.pop() if len(llms) == 1 else None


def trained_by(config: Config, adapter: str) -> str | None:
    """The LLM that this trainer adapter refers to; None unless it refers to exactly one."""
    llms = trained_llms(config.trainer_adapters[adapter]) if adapter in config.trainer_adapters else set()
    return llms.pop() if len(llms) == 1 else None


def each_phase(config: Config) -> list[Config]:
    """The configuration of each phase of the run; without phases, the configuration."""
    return [config.model_copy(update={"finetuning": own}) for own in config.finetuning.each_phase]


def playing_phase(config: Config) -> Config:
    """The configuration of the first phase that plays rollouts, as far as builders say; without phases, this one."""
    builders = ((own, builder_of(own)) for own in each_phase(config))
    return next((own for own, builder in builders if builder is None or builder.plays), config)


def place_of(phases: Sequence[Config], number: int) -> str:
    """Where the settings of a phase stand in the YAML."""
    return f"finetuning.phases.{number} ({phases[number].finetuning.phase})"


def phase_findings(phases: Sequence[Config]) -> list[str]:
    """Settings of phases that do not go together."""
    findings, first = [], phases[0]
    for number, config in enumerate(phases):
        if config.finetuning.phase is None:
            continue
        place, builder = place_of(phases, number), builder_of(config)
        if config.finetuning.curriculum_learning.enabled and builder is not None and not builder.plays:
            findings.append(
                f"{place}: curriculum_learning orders examples by the rewards of rollouts, and "
                f"{builder.type} plays none; set it in the phases that play"
            )
        (was, trained), (now, trains) = _adapter(first), _adapter(config)
        if (was, trained) != (now, trains):
            findings.append(
                f"{place}.trainer_adapter: trains {trains or 'its model'} by {now}, but the phase "
                f"'{first.finetuning.phase}' trains {trained or 'its model'} by {was}; phases train one model"
            )
    return findings


def _adapter(config: Config) -> tuple[str, str | None]:
    """Type of the run's trainer adapter, and the LLM that it trains."""
    name = str(config.finetuning.trainer_adapter)
    return config.trainer_adapters[name].type if name in config.trainer_adapters else name, trained_by(config, name)
