"""The sections of a YAML that hold components: the class of each, and the references between them."""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from nat.config.findings import KeyPath, preview
from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup, ComponentRef, TrainedLLMRef, UntrainedLLMRef
from nat.data_models.config import Config
from nat.errors import RegistryError, one_of
from nat.registry.catalog import current_catalog

NAMED_SECTIONS: dict[tuple[str, ...], ComponentGroup] = {
    ("llms",): ComponentGroup.LLMS,
    ("functions",): ComponentGroup.FUNCTIONS,
    ("ttc_strategies",): ComponentGroup.TTC_STRATEGIES,
    ("eval", "evaluators"): ComponentGroup.EVALUATORS,
    ("general", "telemetry", "tracing"): ComponentGroup.EVAL_CALLBACKS,
    ("trajectory_builders",): ComponentGroup.TRAJECTORY_BUILDERS,
    ("trainer_adapters",): ComponentGroup.TRAINER_ADAPTERS,
    ("trainers",): ComponentGroup.TRAINERS,
    ("finetuning", "trackers"): ComponentGroup.TRACKERS,
}
"""Mappings from a name to a component."""


def value_at(tree: Any, path: KeyPath) -> Any:
    """The value at a path, None if there is none; what has no keys on the way is returned itself."""
    for key in path:
        if isinstance(tree, list) and isinstance(key, int):
            tree = tree[key]
        elif isinstance(tree, dict):
            tree = tree.get(key)
        else:
            break
    return tree


def names_in(tree: Any) -> dict[str, list[str] | None]:
    """The names in each section; None where the section is no mapping, which is an error of its own."""
    sections = {group: value_at(tree, path) for path, group in NAMED_SECTIONS.items()}
    return {
        group: [str(name) for name in section or ()] if isinstance(section, dict | None) else None
        for group, section in sections.items()
    }


def choose(base: type[TypedBaseModel], raw: Any) -> type[TypedBaseModel] | None:
    """The class of a raw component by its `_type`; None where no choice is to be made."""
    if (group := current_catalog().group_of(base)) is None:
        return None
    known = current_catalog().components[group]
    if not isinstance(raw, dict):
        types = f"the types are {one_of(known.names())}"
        raise _error(f"expected a mapping with the key _type, got {preview(raw)}; {types}")
    name = TypedBaseModel.discriminator(raw)
    try:
        if name is None:
            raise RegistryError(f"this key is required. Registered: {one_of(known.names())}")
        return known.get(name).config_type
    except RegistryError as error:
        details = InitErrorDetails(type=_error(error.in_line), loc=("_type",), input=raw.get("_type"))
        raise ValidationError.from_exception_data(base.__name__, [details]) from None


def _error(text: str) -> PydanticCustomError:
    return PydanticCustomError("component", "{text}", {"text": text})


def references_of(value: Any) -> list[ComponentRef]:
    """Every reference inside a component's config."""
    if isinstance(value, ComponentRef):
        return [value]
    if isinstance(value, BaseModel):
        value = [getattr(value, name) for name in type(value).model_fields]
    elif isinstance(value, dict):
        value = list(value.values())
    return [ref for item in value for ref in references_of(item)] if isinstance(value, list | tuple | set) else []


def trained_llms(adapters: Mapping[str, BaseModel], name: str) -> set[str]:
    """The LLMs that a trainer adapter's config refers to, or the adapters in it; without those that it only asks."""
    refs = references_of(adapters[name]) if name in adapters else []
    own = {str(r) for r in refs if r.component_group is ComponentGroup.LLMS and not isinstance(r, UntrainedLLMRef)}
    inner = {str(r) for r in refs if r.component_group is ComponentGroup.TRAINER_ADAPTERS} - {name}
    return own.union(*(trained_llms(adapters, each) for each in inner))


def judges_of(evaluator: BaseModel) -> set[str]:
    """The LLMs that an evaluator's config refers to, without those that it may ask while they are trained."""
    refs = references_of(evaluator)
    return {str(r) for r in refs if r.component_group is ComponentGroup.LLMS and not isinstance(r, TrainedLLMRef)}


def asks_llms(evaluator: BaseModel) -> bool:
    """True if an evaluator's config refers to LLMs."""
    return any(ref.component_group is ComponentGroup.LLMS for ref in references_of(evaluator))


def named_components(config: Config) -> Iterator[tuple[ComponentGroup, str, TypedBaseModel]]:
    """Group, name and config of every named component, in the order of the sections."""
    for path, group in NAMED_SECTIONS.items():
        for name, component in attrgetter(".".join(path))(config).items():
            yield group, name, component
