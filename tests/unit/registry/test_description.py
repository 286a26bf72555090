from typing import Annotated, Literal

from pydantic import BaseModel, SecretStr

from fakes.guide_components import MyTrainerAdapterConfig, register_guide_components
from nat.data_models.component_ref import ComponentGroup
from nat.registry.catalog import pushed_catalog
from nat.registry.description import describe, fields_of, type_text


def test_fields_say_type_default_and_description():
    """Nested models are shown with dotted names, so a user can write the YAML from the description."""
    fields = {field.name: field for field in fields_of(MyTrainerAdapterConfig)}
    assert fields["backend"].required
    assert fields["backend.learning_rate"].default == 1e-5
    assert fields["backend.endpoint"].description == "Training API endpoint URL"
    assert fields["validate_trajectories"].type == "bool"
    assert "reward" not in fields
    assert "type" not in fields


def test_every_registered_component_is_described():
    """Sections, types and modules are listed in a stable order."""
    with pushed_catalog() as catalog:
        register_guide_components()
        described = describe(catalog)
    trainers = [c for c in described if c.section == ComponentGroup.TRAINERS]
    assert "my_trainer" in [c.type for c in trainers]
    assert [c.type for c in trainers] == sorted(c.type for c in trainers)


def test_types_are_readable():
    """A user sees `str or null` instead of `typing.Optional[str]`."""

    class Inner(BaseModel):
        pass

    shown = [
        Annotated[int, "bounded"] | None,
        list[str],
        dict[str, int],
        Literal["a", "b"],
        SecretStr,
        Inner,
        ComponentGroup,
    ]
    assert [type_text(annotation) for annotation in shown][:6] == [
        "int | null",
        "list[str]",
        "dict[str, int]",
        "'a' | 'b'",
        "SecretStr",
        "Inner",
    ]
    assert type_text(ComponentGroup).startswith("'llms' | ")
