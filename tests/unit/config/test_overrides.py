import pytest

from nat.config.findings import Findings
from nat.config.overrides import apply_overrides
from nat.errors import ConfigError


def override(tree, *overrides):
    findings = Findings()
    result = apply_overrides(tree, overrides, findings)
    findings.raise_if_any("test")
    return result


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5", 0.5), ("1e-6", 1e-6), ("true", True), ("null", None), ("[1, 2]", [1, 2]), ("a b", "a b"), ("'7'", "7")],
)
def test_the_value_is_yaml(text, value):
    """Any value can be written: numbers, null, lists; the type of the old value does not matter."""
    assert override({"a": {"b": 0}}, ("a.b", text)) == {"a": {"b": value}}


def test_lists_are_indexed():
    """A number in the path is the index of a list."""
    assert override({"a": [{"b": 1}, {"b": 2}]}, ("a.1.b", "3")) == {"a": [{"b": 1}, {"b": 3}]}


def test_missing_mappings_are_made():
    """A section that the file left out can be set from outside."""
    assert override({}, ("a.b.c", "1")) == {"a": {"b": {"c": 1}}}


def test_the_original_is_untouched():
    """Overriding gives a new tree."""
    tree = {"a": {"b": [1]}}
    override(tree, ("a.b.0", "2"))
    assert tree == {"a": {"b": [1]}}


def test_later_overrides_win():
    """Overrides are applied in their order."""
    assert override({}, ("a", "1"), ("a", "2")) == {"a": 2}


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("a.b.c", "1", "goes into 0"),
        ("l.5", "1", "item 5 of a list of 1"),
        ("l.x", "1", "item x of a list of 1"),
        ("a.b", "[", "no YAML"),
        ("a..b", "1", "no dotted path"),
    ],
)
def test_what_cannot_be_applied_is_a_finding(path, text, message):
    """A path that leads nowhere is told and not silently dropped."""
    with pytest.raises(ConfigError, match=message):
        override({"a": {"b": 0}, "l": [1]}, (path, text))
