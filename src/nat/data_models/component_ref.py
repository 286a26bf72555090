"""References from one component to another.

A config declares `llm: LLMRef`, the YAML gives a name, and loading checks that the name exists.
"""

from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from nat.data_models.common import Loading
from nat.errors import did_you_mean, one_of


class ComponentGroup(StrEnum):
    """The YAML sections that hold named components."""

    LLMS = "llms"
    FUNCTIONS = "functions"
    EVALUATORS = "eval.evaluators"
    DATASETS = "eval.general.dataset"
    TTC_STRATEGIES = "ttc_strategies"
    TRAJECTORY_BUILDERS = "trajectory_builders"
    TRAINER_ADAPTERS = "trainer_adapters"
    TRAINERS = "trainers"
    EVAL_CALLBACKS = "general.telemetry.tracing"
    TRACKERS = "finetuning.trackers"


class ComponentRef(str):
    """The name of a component, a string; a subclass names the group by the class keyword `group=`."""

    __slots__ = ()
    group: ClassVar[ComponentGroup]

    def __init_subclass__(cls, group: ComponentGroup | None = None) -> None:
        if group is not None:
            cls.group = group

    @property
    def component_group(self) -> ComponentGroup:
        return self.group

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(
            cls._known, core_schema.str_schema(), serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def _known(cls, name: str, info: core_schema.ValidationInfo) -> Self:
        """The reference; while a YAML is loaded, the context has the names of each section, None if it has no names."""
        known = info.context.names.get(cls.group) if isinstance(info.context, Loading) else None
        if known is None or name in known:
            return cls(name)
        text = f"'{name}' is not under {cls.group}.{did_you_mean(name, known)} There: {one_of(known)}."
        raise PydanticCustomError("reference", "{text}", {"text": text})


class LLMRef(ComponentRef, group=ComponentGroup.LLMS):
    """A key of `llms`."""


class UntrainedLLMRef(LLMRef):
    """A key of `llms`, in a trainer adapter that asks this LLM and does not train it."""


class TrainedLLMRef(LLMRef):
    """A key of `llms`, in an evaluator that may ask the model that is trained; with an `LLMRef` a run refuses that."""


class FunctionRef(ComponentRef, group=ComponentGroup.FUNCTIONS):
    """A key of `functions`."""


class EvaluatorRef(ComponentRef, group=ComponentGroup.EVALUATORS):
    """A key of `eval.evaluators`."""


class TTCStrategyRef(ComponentRef, group=ComponentGroup.TTC_STRATEGIES):
    """A key of `ttc_strategies`."""


class TrajectoryBuilderRef(ComponentRef, group=ComponentGroup.TRAJECTORY_BUILDERS):
    """A key of `trajectory_builders`."""


class TrainerAdapterRef(ComponentRef, group=ComponentGroup.TRAINER_ADAPTERS):
    """A key of `trainer_adapters`."""


class TrainerRef(ComponentRef, group=ComponentGroup.TRAINERS):
    """A key of `trainers`."""


class ForeignRef(ComponentRef):
    """The name of a component in a section of the wider toolkit that this project does not have; it must not be set."""

    @classmethod
    def _known(cls, name: str, info: core_schema.ValidationInfo) -> Self:
        if isinstance(info.context, Loading):
            text = f"'{name}' names a component of a section that this project does not have; leave the key out"
            raise PydanticCustomError("reference", "{text}", {"text": text})
        return cls(name)


FunctionGroupRef = ForeignRef
EmbedderRef = ForeignRef
MemoryRef = ForeignRef
ObjectStoreRef = ForeignRef
RetrieverRef = ForeignRef
AuthenticationRef = ForeignRef
MiddlewareRef = ForeignRef
