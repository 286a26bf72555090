import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.errors import RegistryError, did_you_mean
from nat.registry.catalog import Registry


def filled(*names: str) -> Registry[str]:
    registry = Registry[str]("trainer")
    for name in names:
        registry.add(name, name)
    return registry


def test_short_and_full_names_find_an_entry():
    """The short name works while it is unique, the full name always."""
    registry = filled("nat/openai", "other/mine")
    assert registry.get("openai") == registry.get("nat/openai") == "nat/openai"


def test_a_duplicate_raises():
    """Without the error, the second registration would win silently."""
    with pytest.raises(RegistryError, match="already registered"):
        filled("a/x", "a/x")


def test_an_ambiguous_name_lists_the_full_ones():
    """If two packages use a short name, the error lists both full names."""
    registry = filled("a/x", "b/x", "b/y")
    with pytest.raises(RegistryError, match="a/x, b/x"):
        registry.get("x")
    assert registry.names() == ["a/x", "b/x", "y"]


def test_an_unknown_name_gets_a_suggestion():
    """The error names the nearest and all known names."""
    with pytest.raises(RegistryError, match=r"'openia' is not registered as trainer. Did you mean 'openai'\?"):
        filled("nat/openai").get("openia")


@given(st.lists(st.text("abcde", min_size=3, max_size=8), min_size=1, unique=True))
def test_a_known_word_suggests_itself(words):
    """A name that differs only in case is always suggested."""
    assert did_you_mean(words[0].upper(), words) == f" Did you mean '{words[0]}'?"


def test_a_distant_name_gives_no_suggestion():
    """A wild guess would mislead."""
    assert did_you_mean("zzz", ["openai"]) == ""
