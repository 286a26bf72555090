import pytest
from pydantic import ConfigDict, SecretStr, ValidationError

from nat.data_models.common import TypedBaseModel, get_secret_value


class Parent(TypedBaseModel, name="parent"):
    size: int = 1


class Child(Parent):
    """Gives no name."""


class Open(TypedBaseModel, name="open"):
    model_config = ConfigDict(extra="allow")


def test_name_keyword_sets_the_type():
    """The class keyword `name=` is the `_type` of the YAML; the full type names the package too."""
    assert Parent.static_type() == "parent"
    assert Parent.static_full_type() == f"{__name__.partition('.')[0]}/parent"


def test_a_class_without_name_inherits_it():
    """A subclass without `name=` has its parent's type."""
    assert Child.static_type() == "parent"


def test_the_base_has_no_type():
    """Nobody can name the base class in a YAML."""
    assert TypedBaseModel.static_type() is None
    assert TypedBaseModel.static_full_type() is None


def test_a_dump_can_be_loaded_again():
    """A dump says its `_type`, and loading takes it back."""
    dumped = Parent(size=3).model_dump(by_alias=True)
    assert dumped == {"_type": "parent", "size": 3}
    assert Parent.model_validate(dumped) == Parent(size=3)


def test_unknown_keys_are_errors_unless_the_class_allows_them():
    """A typo in a component never passes silently; a class may opt out."""
    with pytest.raises(ValidationError, match="siez"):
        Parent.model_validate({"siez": 2})
    assert Open.model_validate({"logprobs": True}).model_extra == {"logprobs": True}


@pytest.mark.parametrize(
    ("value", "expected"),
    [({"_type": "a"}, "a"), ({"type": "b"}, "b"), ({}, None), ({"_type": 3}, None), (Parent(), "parent"), (3, None)],
)
def test_discriminator(value, expected):
    """`_type` and `type` are read from mappings, the static type from configs, None from anything else."""
    assert TypedBaseModel.discriminator(value) == expected


def test_configs_can_be_changed_by_their_owner():
    """The guide's interfaces assign to fields of their config."""
    config = Parent()
    config.size = 7
    assert config.size == 7


def test_secrets_are_unwrapped():
    """A secret, a plain text and None all give what can be sent."""
    assert [get_secret_value(v) for v in (SecretStr("a"), "b", None)] == ["a", "b", None]
