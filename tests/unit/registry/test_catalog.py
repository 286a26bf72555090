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
    """The same name twice would make the second registration win silently."""
    with pytest.raises(RegistryError, match="already registered"):
        filled("a/x", "a/x")


def test_an_ambiguous_name_lists_the_full_ones():
    """Two packages with one short name: the user must choose, and learns between what."""
    registry = filled("a/x", "b/x", "b/y")
    with pytest.raises(RegistryError, match="a/x, b/x"):
        registry.get("x")
    assert registry.names() == ["a/x", "b/x", "y"]


def test_an_unknown_name_gets_a_suggestion():
    """A typo is answered with the nearest name and with all that there are."""
    with pytest.raises(RegistryError, match=r"'openia' is not registered as trainer. Did you mean 'openai'\?"):
        filled("nat/openai").get("openia")


def test_a_copy_grows_on_its_own():
    """What is added to a copy is not in the original."""
    registry = filled("a/x")
    twin = registry.copy()
    twin.add("a/y", "a/y")
    assert len(registry) == 1
    assert list(twin) == ["a/x", "a/y"]


@given(st.lists(st.text("abcde", min_size=3, max_size=8), min_size=1, unique=True))
def test_a_known_word_suggests_itself(words):
    """An exact match in another case is always the suggestion."""
    assert did_you_mean(words[0].upper(), words) == f" Did you mean '{words[0]}'?"


def test_nothing_close_gives_no_suggestion():
    """A wild guess would mislead."""
    assert did_you_mean("zzz", ["openai"]) == ""
