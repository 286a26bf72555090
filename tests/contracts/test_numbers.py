"""Every number that a client sends for training is finite and bounded, in each record and each algorithm's options."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from nat.art.server.algorithm import ART
from nat.art.server.serverless import ServerlessTrainRequest
from nat.art.wire import ArtModel, ArtTrainRequest
from nat.backend.algorithms.registry import BUILT_IN
from nat.registry.description import type_text
from nat.sizing.forecast import ForecastRequest
from nat.wire.training import TrainingConfig, TrainingJob

RECORDS = (
    TrainingJob,
    ForecastRequest,
    ArtTrainRequest,
    ServerlessTrainRequest,
    ArtModel,
    *(each.options for each in (*BUILT_IN, ART)),
)
SETTINGS = {"TrainingConfig": TrainingConfig, **{each.name: each.options for each in (*BUILT_IN, ART)}}
IMPOSSIBLE = ("NaN", "Infinity", "-Infinity", "1e300", "-1e300", f"1{'0' * 400}", "1e400")


def fields(record: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The name of each record inside of one, of its fields, and their schemas."""
    schema = TypeAdapter(record).json_schema()
    for name, part in {**schema.get("$defs", {}), schema.get("title", ""): schema}.items():
        for field, own in part.get("properties", {}).items():
            yield name, field, own


def numbers(schema: Any) -> Iterator[dict[str, Any]]:
    """The schemas of floats inside of a field's schema, without those of other records."""
    if isinstance(schema, dict):
        if schema.get("type") == "number":
            yield schema
        schema = [value for key, value in schema.items() if key not in {"default", "enum"}]
    if isinstance(schema, list):
        for each in schema:
            yield from numbers(each)


def test_all_numbers_have_bounds():
    """A new field cannot be without a lower and an upper bound, which also exclude NaN and infinity."""
    checked, unbounded = set(), set()
    for record in RECORDS:
        for name, field, schema in fields(record):
            for number in numbers(schema):
                checked.add((name, field))
                low, high = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
                if not (number.keys() & low and number.keys() & high):
                    unbounded.add((name, field))
    assert unbounded == set()
    assert {
        ("Span", "logprobs"),
        ("Span", "teacher_logprobs"),
        ("TrainingRollout", "advantage"),
    } <= checked


@pytest.mark.parametrize("value", IMPOSSIBLE)
def test_an_impossible_setting_is_refused_by_name(value):
    """NaN, infinity and numbers that overflow are errors at the name of the setting, whatever its default is."""
    for record in SETTINGS.values():
        for name, field in record.model_fields.items():
            if "float" not in type_text(field.annotation):
                continue
            with pytest.raises(ValidationError) as caught:
                record.model_validate_json(f'{{"{name}": {value}}}')
            assert name in {error["loc"][0] for error in caught.value.errors()}
