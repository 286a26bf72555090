"""A phase of training, as the YAML has it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nat.config.components import trained_llms
from nat.data_models.config import Config
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.finetuning import FinetuneConfig, TrainerAdapterConfig, TrainerConfig, TrajectoryBuilderConfig
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilderConfig


@dataclass(frozen=True)
class Stage:
    """A phase of training, or all of a run without phases: its settings, and the components that they name."""

    finetuning: FinetuneConfig
    """The `finetuning` section with what the phase replaces in it."""
    place: str
    """Where the phase's settings stand in the YAML."""
    trainer: TrainerConfig | None
    """None if the YAML has no component of that name; likewise the next two."""
    builder: TrajectoryBuilderConfig | None
    adapter: TrainerAdapterConfig | None
    reward: EvaluatorBaseConfig | None
    """The evaluator whose score is the reward; None if it is not set or not there."""
    students: tuple[str, ...] = ()
    """The LLMs that the adapter trains, as far as it refers to them."""

    @property
    def num_generations(self) -> int | None:
        """Rollouts per example in an epoch; None if the builder does not declare them."""
        return self.builder.num_generations if isinstance(self.builder, EvalTrajectoryBuilderConfig) else None

    @property
    def compares_examples(self) -> bool:
        """True if all rollouts of an epoch are one group."""
        return isinstance(self.builder, EvalTrajectoryBuilderConfig) and self.builder.compares_examples

    def type_of(self, part: Literal["trainer", "trajectory_builder", "trainer_adapter"]) -> str:
        """The `_type` of a component, or the name that no component has."""
        parts = {"trainer": self.trainer, "trajectory_builder": self.builder, "trainer_adapter": self.adapter}
        component = parts[part]
        return str(getattr(self.finetuning, part)) if component is None else component.type

    @property
    def plays(self) -> bool:
        """False if it trains on rows of a file, as far as the builder says."""
        return self.builder is None or self.builder.plays

    @property
    def reward_compares(self) -> bool:
        """True if the reward compares the generations of an example with each other."""
        return self.reward is not None and self.reward.compares_generations


def stages_of(config: Config) -> tuple[Stage, ...]:
    """The phases of a run, one after the other; without phases, the one stage that it is."""
    evaluators = config.eval.evaluators
    return tuple(
        Stage(
            finetuning=own,
            place=f"finetuning.phases.{number} ({own.phase})",
            trainer=config.trainers.get(str(own.trainer)),
            builder=config.trajectory_builders.get(str(own.trajectory_builder)),
            adapter=config.trainer_adapters.get(str(own.trainer_adapter)),
            reward=None if own.reward_function is None else evaluators.get(own.reward_function.name),
            students=tuple(sorted(trained_llms(config.trainer_adapters, str(own.trainer_adapter)))),
        )
        for number, own in enumerate(config.finetuning.each_phase)
    )


def playing_stage(stages: Sequence[Stage]) -> Stage | None:
    """The first one that plays rollouts, as far as builders say."""
    return next((stage for stage in stages if stage.plays), None)


def students_of(stages: Sequence[Stage]) -> tuple[str, ...]:
    """The LLMs that all stages train; none unless it is the same ones."""
    llms = {stage.students for stage in stages}
    return llms.pop() if len(llms) == 1 else ()
