"""No key of a YAML is dropped silently."""

import types
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import AliasChoices, BaseModel, Field, model_validator
from typing_extensions import TypedDict

from nat.config import parse_config
from nat.config.components import NAMED_SECTIONS
from nat.data_models.component_ref import ComponentGroup, ComponentRef
from nat.data_models.config import Config
from nat.data_models.function import FunctionBaseConfig
from nat.errors import ConfigError
from nat.registry.catalog import current_catalog, pushed_catalog
from nat.registry.decorators import register_function
from nat.registry.discovery import discover_components

SINGLE_SECTIONS = {
    ("workflow",): ComponentGroup.FUNCTIONS,
    ("eval", "general", "dataset"): ComponentGroup.DATASETS,
}
SET_BY_THE_RUN = {"type", "reward"}
URLS = {"base_url", "url", "entity_host", "datastore_host"}


def findings_of(tree) -> list[str]:
    try:
        parse_config(tree, environ={})
    except ConfigError as error:
        return error.findings
    return []


def example_of(model: type[BaseModel]) -> dict[str, Any]:
    """A mapping with every required key and every optional model."""
    raw = {}
    for name, field in model.model_fields.items():
        if name in URLS:
            raw[name] = "http://localhost"
        elif name not in SET_BY_THE_RUN and (field.is_required() or list(models_in(field.annotation))):
            raw[name] = value_of(field.annotation)
    return raw


def models_in(annotation):
    if isinstance(annotation, type) and not get_args(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def value_of(annotation) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return value_of(max(arguments, key=lambda argument: len(list(models_in(argument)))))
    if origin is list:
        return [value_of(arguments[0])]
    if origin is dict:
        return {"x": value_of(arguments[1])}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return example_of(annotation)
    if isinstance(annotation, type) and issubclass(annotation, ComponentRef):
        return "named"
    return {int: 7, float: 0.5}.get(annotation, "text")


def whole_tree() -> dict[str, Any]:
    """Every section with a component of every registered type."""
    tree = example_of(Config)
    for path, group in (NAMED_SECTIONS | SINGLE_SECTIONS).items():
        types_ = {c.local_name: {"_type": c.full_type, **example_of(c.config_type)} for c in registered(group)}
        node = tree
        for key in path[:-1]:
            node = node[key]
        # Any one of them also goes by the name that references use.
        node[path[-1]] = next(iter(types_.values())) if path in SINGLE_SECTIONS else types_
        if path in NAMED_SECTIONS and types_:
            node[path[-1]]["named"] = next(iter(types_.values()))
    return tree


def registered(group):
    return sorted(current_catalog().components[group], key=lambda component: component.local_name)


def places(value, path=()):
    """Every mapping in the tree, with its path."""
    if isinstance(value, dict):
        yield path
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def planted(value, path):
    """A copy of the tree with an unknown key in that mapping."""
    if not path:
        return {**value, "unheard_of": 1}
    key, rest = path[0], path[1:]
    if isinstance(value, list):
        return [planted(item, rest) if index == key else item for index, item in enumerate(value)]
    return {**value, key: planted(value[key], rest)}


def test_an_unknown_key_is_found_at_every_level():
    """An unknown key in any mapping of a file with every registered component is reported with its path.

    Only arguments that an ART server passes to its libraries allow any key, and the toolkit's exporters, which have no
    effect here.
    """
    discover_components()
    tree = whole_tree()
    parse_config(tree, environ={})
    passed_on = set()
    for place in places(tree):
        if found := findings_of(planted(tree, place)):
            assert [f.split(":")[0] for f in found] == [".".join(map(str, (*place, "unheard_of")))]
        else:
            passed_on.add(place)
    art = ("trainer_adapters", "openpipe_art_trainer_adapter", "backend")
    arguments = ("init_args", "peft_args")
    exporters = {("general", "telemetry", "tracing")}
    assert passed_on == exporters | {(*art, name) for name in arguments}


@dataclass
class Retry:
    times: int = 1


class Limits(TypedDict, total=False):
    seconds: float


class Server(BaseModel):
    """A model as plug-ins write it: pydantic's default drops unknown keys."""

    url: str = Field(default="", validation_alias=AliasChoices("url", "address"))
    retry: Retry = Retry()
    limits: Limits | None = None


class PluginConfig(FunctionBaseConfig, name="plugin_with_a_server"):
    server: Server = Server()
    servers: tuple[Server, ...] = ()
    by_name: dict[str, Server] | None = None


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ({"server": {"adress": "x"}}, "server.adress: unknown key. Did you mean 'address'?"),
        ({"server": {"retry": {"time": 3}}}, "server.retry.time: unknown key. Did you mean 'times'?"),
        ({"server": {"limits": {"secs": 3}}}, "server.limits.secs: unknown key. Did you mean 'seconds'?"),
        ({"servers": [{}, {"ur": "x"}]}, "servers.1.ur: unknown key. Did you mean 'url'?"),
        ({"by_name": {"a": {"ur": "x"}}}, "by_name.a.ur: unknown key. Did you mean 'url'?"),
    ],
)
def test_models_of_plug_ins_drop_nothing(raw, found):
    """Unknown keys are found in plain models, dataclasses, typed mappings and lists inside a component."""
    with pushed_catalog():

        @register_function(config_type=PluginConfig)
        async def plugin(config, builder):
            yield

        assert findings_of({"workflow": {"_type": "plugin_with_a_server", **raw}}) == [f"workflow.{found}"]
        assert findings_of({"workflow": {"_type": "plugin_with_a_server", "server": {"address": "x"}}}) == []


class Renamed(FunctionBaseConfig, name="renamed"):
    rate: float = 0.0

    @model_validator(mode="before")
    @classmethod
    def _old_name(cls, data):
        return {"rate" if key == "lr" else key: value for key, value in data.items()}


def test_a_key_that_a_validator_accepts_is_known():
    """A model's validator may accept an older spelling before validation."""
    with pushed_catalog():

        @register_function(config_type=Renamed)
        async def renamed(config, builder):
            yield

        assert findings_of({"workflow": {"_type": "renamed", "lr": 0.1}}) == []
        [found] = findings_of({"workflow": {"_type": "renamed", "lr": 0.1, "momentum": 0.9}})
        assert found.startswith("workflow.momentum: unknown key.")
