import pytest
from pydantic import ConfigDict, Field, SecretStr, ValidationError

from nat.data_models.common import ComparableSecretStr, TypedBaseModel, get_secret_value
from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig


class Parent(TypedBaseModel, name="parent"):
    size: int = 1


class Asks(TypedBaseModel, name="asks"):
    llm: LLMRef


class Open(TypedBaseModel, name="open"):
    model_config = ConfigDict(extra="allow")


def test_the_name_keyword_sets_the_type():
    """The class keyword `name=` is the `_type` of the YAML; the full type includes the package."""
    assert Parent.static_type() == "parent"
    assert Parent.static_full_type() == f"{__name__.partition('.')[0]}/parent"


def test_a_dump_can_be_loaded_again():
    """A dump contains the `_type` that loading reads."""
    dumped = Parent(size=3).model_dump(by_alias=True)
    assert dumped == {"_type": "parent", "size": 3}
    assert Parent.model_validate(dumped) == Parent(size=3)


def test_unknown_keys_are_errors_unless_the_class_allows_them():
    """A misspelt key of a component is an error; a class may opt out."""
    with pytest.raises(ValidationError, match="siez"):
        Parent.model_validate({"siez": 2})
    assert Open.model_validate({"logprobs": True}).model_extra == {"logprobs": True}


def test_a_plug_in_may_validate_in_a_context_of_its_own():
    """Only the loader of a YAML chooses classes and checks names."""
    assert Asks.model_validate({"llm": "any"}, context={"tenant": 1}).llm == "any"


def test_secrets_are_unwrapped():
    """A secret, a plain text and None each give the value to send."""
    assert [get_secret_value(v) for v in (SecretStr("a"), "b", None)] == ["a", "b", None]


class Shelf(FunctionBaseConfig, name="shelf_for_hashes"):
    tags: set[str] = Field(default_factory=set)


def test_a_config_can_be_a_key():
    """Equal configs are one key, with field values of any kind."""
    assert {Shelf(tags={"a", "b"}): "found"}[Shelf(tags={"b", "a"})] == "found"
    assert Shelf() not in {Shelf(tags={"a"})}


def test_a_config_has_a_display_name():
    """The class keyword `name=` is the type; the field `name` is the display name."""
    assert Shelf.static_type() == "shelf_for_hashes"
    assert Shelf(name="My shelf").name == "My shelf"
    assert Shelf().name is None


def test_a_comparable_secret_equals_its_text_and_shows_stars():
    """A secret equals its plain string, but prints stars."""
    secret = ComparableSecretStr("default")
    assert secret == "default"
    assert secret == SecretStr("default")
    assert secret == ComparableSecretStr("default")
    assert secret != "other"
    assert secret != 7
    assert hash(secret) == hash("default")
    assert "default" not in f"{secret} {secret!r}"
