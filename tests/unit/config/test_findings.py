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
        ({"count": 0}, "section.count: should be greater than or equal to 1; got 0"),
        (
            {"count": "4,096 "},
            "section.count: should be a valid integer, unable to parse string as an integer; got '4,096 '",
        ),
        ({"count": None}, "section.count: should be a valid integer; got null"),
        ({"inner": "x"}, "section.inner: should be a mapping of keys to values; got 'x'"),
        ({"inner": {"name": "y", "nam": "x"}}, "section.inner.nam: unknown key. Did you mean 'name'?"),
        ({"inner": {"name": 3}}, "section.inner.name: should be a valid string; got 3"),
        ({"several": "x"}, "section.several: should be a valid list; got 'x'"),
        ({"several": [{"name": 3}]}, "section.several.0.name: should be a valid string; got 3"),
        (
            {"by_name": {"A B": "x"}},
            "section.by_name.A B: should be a valid integer, unable to parse string as an integer; got 'x'",
        ),
        ({"key": 123456}, "section.key: should be a valid string; got **********"),
    ],
)
def test_a_mistake_is_one_finding(raw, finding):
    """What was wanted, and what was found; a secret is not shown."""
    assert found(raw) == [finding]


def test_the_parts_of_a_union_are_one_finding():
    """Pydantic reports each part under a name of its own, which is no key of the file."""
    assert found({"stop": 7}) == ["section.stop: should be a valid list or should be a valid string; got 7"]
