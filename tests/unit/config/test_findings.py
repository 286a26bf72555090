from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from nat.config import parse_config
from nat.data_models.function import FunctionBaseConfig
from nat.errors import ConfigError
from nat.registry.catalog import pushed_catalog
from nat.registry.decorators import from_config, register_function


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    enabled: bool = False


class Section(FunctionBaseConfig, name="section"):
    count: int = Field(default=1, ge=1)
    stop: list[str] | str | None = None
    inner: Inner | None = None
    several: list[Inner] = Field(default_factory=list)
    by_name: dict[str, int] = Field(default_factory=dict)
    key: SecretStr | None = None


def found(raw: Any) -> list[str]:
    with pushed_catalog():
        register_function(config_type=Section)(from_config(lambda config: config))
        try:
            parse_config({"functions": {"section": {"_type": "section", **raw}}}, environ={})
        except ConfigError as error:
            return [each.removeprefix("functions.") for each in error.findings]
    return []


@pytest.mark.parametrize(
    ("raw", "finding"),
    [
        ({"count": 0}, "section.count: expected a number of at least 1, got 0"),
        ({"count": "4,096 "}, "section.count: expected a whole number, got '4,096 '"),
        ({"count": None}, "section.count: expected a whole number, got null"),
        ({"inner": "x"}, "section.inner: expected a mapping (keys: enabled, name), got 'x'; write {name: x}"),
        ({"inner": True}, "section.inner: expected a mapping (keys: enabled, name), got true; write {enabled: true}"),
        ({"inner": {"nam": "x"}}, "section.inner.nam: unknown key. Did you mean 'name'?"),
        ({"inner": {"name": 3}}, "section.inner.name: expected a text, got 3; put it in quotes"),
        ({"several": "x"}, "section.several: expected a list, got 'x'; write [x]"),
        ({"several": [{"name": 3}]}, "section.several.0.name: expected a text, got 3; put it in quotes"),
        ({"by_name": {"A B": "x"}}, "section.by_name.A B: expected a whole number, got 'x'"),
        ({"key": 123456}, "section.key: expected a text, got **********"),
    ],
)
def test_a_mistake_is_one_finding(raw, finding):
    """What was wanted, what was found, and how to write what was probably meant; a secret is not shown."""
    assert found(raw) == [finding]


def test_the_parts_of_a_union_are_one_finding():
    """Pydantic reports each part under a name of its own, which is no key of the file."""
    assert found({"stop": 7}) == ["section.stop: expected a list or a text, got 7"]
