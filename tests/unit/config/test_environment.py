import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.config.environment import fill_in
from nat.config.findings import Findings
from nat.errors import ConfigError

ENVIRON = {"HOST": "http://h:1", "N": "5", "EMPTY": "", "ZEROS": "0042", "YES": "true", "STRUCTURE": "a: {b: 1}"}


def fill(value, environ=ENVIRON):
    findings = Findings()
    filled = fill_in(value, environ, findings)
    findings.raise_if_any("test")
    return filled.tree


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${HOST}/v1", "http://h:1/v1"),
        ("$HOST", "http://h:1"),
        ("${N}", 5),
        ("n=${N}", "n=5"),
        ("${MISSING:-7}", 7),
        ("${MISSING:-}", None),
        ("${MISSING-x}", "x"),
        ("${EMPTY:-x}", "x"),
        ("${EMPTY-x}", None),
        ("${YES}", True),
        ("${MISSING:-1e-6}", 1e-6),
        ("\\$HOST", "$HOST"),
        ("costs $5", "costs $5"),
        ("$.path[0]", "$.path[0]"),
    ],
)
def test_variables(text, expected):
    """A scalar that is nothing but a variable is parsed as YAML; a variable inside a text stays text."""
    assert fill(text) == expected


def test_a_value_never_changes_the_structure():
    """What looks like YAML structure inside a variable is text, so that a password with a colon is harmless."""
    assert fill({"a": "${STRUCTURE}"}) == {"a": "a: {b: 1}"}


def test_leading_zeros_are_text():
    """An id such as "0042" is not the octal number 34."""
    assert fill("${ZEROS}") == "0042"


def test_unset_variables_are_findings_with_path():
    """All unset variables are told at once, each with the place that wants it and a similar name that is set."""
    with pytest.raises(ConfigError) as caught:
        fill({"a": {"b": ["${HOSTT}"]}, "c": "${OTHER}"})
    assert len(caught.value.findings) == 2
    assert caught.value.findings[0].startswith("a.b.0: the environment variable HOSTT is not set")
    assert "Did you mean 'HOST'?" in caught.value.findings[0]


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text("abc: {}[]"), lambda s: st.lists(s, max_size=3))
)
def test_a_tree_without_variables_stays_as_it_is(tree):
    """Filling in touches nothing but variables."""
    assert fill({"k": tree}, {}) == {"k": tree}
