"""The base of every config that `_type` can select in a YAML.

A subclass gets its type name from the class keyword `name=`; the class itself holds no logic. The
registry knows which function builds it.
"""

import os
from collections.abc import Callable, Collection, Mapping
from hmac import compare_digest
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SecretStr,
    ValidationInfo,
    model_validator,
)


class Loading(NamedTuple):
    """What pydantic's context has while a YAML is loaded; a plug-in may validate with a context of its own."""

    choose: "Callable[[type[TypedBaseModel], Any], type[TypedBaseModel] | None]"
    """The class of a raw component, by its `_type`; None where no choice is to be made."""
    names: Mapping[str, Collection[str] | None]
    """Of the components in each section; None where the section is no mapping."""
    extra: Literal["forbid"] | None = None
    """Forbid unknown keys in classes that would drop them, too."""


class TypedBaseModel(BaseModel):
    """A config whose class is chosen by `_type`; unknown keys are errors unless a subclass says otherwise."""

    model_config = ConfigDict(
        extra="forbid",
        validate_default=True,
        populate_by_name=True,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

    _local_type: ClassVar[str | None] = None
    _package: ClassVar[str] = ""

    type: str = Field(
        default="", validation_alias=AliasChoices("_type", "type"), serialization_alias="_type", repr=False, frozen=True
    )
    """The registered name of this component's type."""

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is not None:
            cls._local_type = name
            cls._package = cls.__module__.partition(".")[0]

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_type(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Any:
        """A raw component of a YAML is validated by the class that its `_type` names; the loader chooses it."""
        loading = info.context
        if not isinstance(loading, Loading) or isinstance(data, TypedBaseModel):
            return handler(data)
        chosen = loading.choose(cls, data)
        if chosen is None or chosen is cls:
            return handler(data)
        return chosen.model_validate(data, context=loading, extra=loading.extra)

    @model_validator(mode="before")
    @classmethod
    def _set_type(cls, data: Any) -> Any:
        """Set `_type`, so that a dumped config can be loaded again."""
        if isinstance(data, dict) and "_type" not in data and "type" not in data:
            return {"_type": cls._local_type or "", **data}
        return data

    @classmethod
    def static_type(cls) -> str | None:
        """The name given by `name=` in this class or the nearest parent, None if there is none."""
        return cls._local_type

    @classmethod
    def static_full_type(cls) -> str | None:
        """`<top-level package>/<name>`, unique even if two packages use the same name."""
        return None if cls._local_type is None else f"{cls._package}/{cls._local_type}"

    @staticmethod
    def discriminator(value: Any) -> str | None:
        """The `_type` of a raw mapping or of a config, None if it has none."""
        if isinstance(value, dict):
            found = value.get("_type", value.get("type"))
            return found if isinstance(found, str) else None
        return value.static_type() if isinstance(value, TypedBaseModel) else None


class HashableBaseModel(BaseModel):
    """A model that can be a key of a dict or in a set; equal models have equal hashes. Do not change it then."""

    def __hash__(self) -> int:
        return hash(type(self))


class BaseModelRegistryTag:
    """Marks the base class of a component group; it has no members."""


class ComparableSecretStr(SecretStr):
    """A secret that equals its own text, so that code can compare it with a plain string; it still prints as stars."""

    def __eq__(self, other: object) -> bool:
        text = other.get_secret_value() if isinstance(other, SecretStr) else other
        return isinstance(text, str) and compare_digest(self.get_secret_value().encode(), text.encode())

    def __hash__(self) -> int:
        return hash(self.get_secret_value())


def get_secret_value(secret: SecretStr | str | None) -> str | None:
    """The text of a secret; plain strings and None pass."""
    return secret.get_secret_value() if isinstance(secret, SecretStr) else secret


def set_secret_from_env(model: BaseModel, field_name: str, env_var: str) -> None:
    """Set a secret field of a config to the environment variable's value; without the variable it is left unchanged."""
    if (value := os.environ.get(env_var)) is not None:
        setattr(model, field_name, SecretStr(value))


SerializableSecretStr = SecretStr
OptionalSecretStr = SecretStr | None
