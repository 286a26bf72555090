"""Surrogates become text that can be written."""

from typing import Any

from pydantic import BaseModel

from nat.wire.json import json_text, without_surrogates


class Record(BaseModel):
    text: str = ""
    anything: Any = None


def test_each_surrogate_becomes_its_escape():
    """Surrogates are escaped at any depth and in keys; other text stays unchanged."""
    odd = {"a\ud83d": ["\ud83d", ("é😀", 1.5)], "b": Record(text="\ude00")}
    plain = {"a\\ud83d": ["\\ud83d", ["é😀", 1.5]], "b": {"text": "\\ude00", "anything": None}}
    assert without_surrogates(odd) == plain


def test_a_record_can_always_be_written():
    """Values without a JSON form become text."""
    assert json_text(Record(text="x")) == '{"text":"x","anything":null}'
    assert json_text(Record(text="\ud83d"), exclude_defaults=True) == '{"text":"\\\\ud83d"}'
    assert "<class 'set'>" in json_text(Record(anything=set))
