import pytest

from nat.config.sources import apply_overrides, expand_variables, read_tree
from nat.errors import ConfigError
from nat.secrets import REDACTED, redact


def test_base_files_are_merged_recursively(tmp_path):
    """A file inherits from its base, which may have a base; the nearest value wins, and paths start at the file."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "root.yml").write_text("llms: {m: {a: 1, b: 1}}\nx: [1, 2]\n")
    (tmp_path / "sub" / "mid.yml").write_text("base: ../root.yml\nllms: {m: {b: 2}}\n")
    (tmp_path / "top.yml").write_text("base: sub/mid.yml\nx: [3]\n")
    assert read_tree(tmp_path / "top.yml") == {"llms": {"m": {"a": 1, "b": 2}}, "x": [3]}


def test_overridden_values_stay_secret(tmp_path):
    """The file still has the value that an override replaces; a variable is no secret until it is filled in."""
    (tmp_path / "base.yml").write_text("llms: {m: {api_key: key-of-the-base-1}}\n")
    (tmp_path / "top.yml").write_text("base: base.yml\nllms: {m: {api_key: '${THE_KEY}'}}\n")
    assert read_tree(tmp_path / "top.yml") == {"llms": {"m": {"api_key": "${THE_KEY}"}}}
    assert redact("key-of-the-base-1 ${THE_KEY}") == f"{REDACTED} ${{THE_KEY}}"


def test_a_wrong_base_is_quoted_without_secrets(tmp_path):
    """An error about `base` redacts the value as every error does."""
    (tmp_path / "top.yml").write_text("base: {api_key: not-to-be-seen-1}\n")
    with pytest.raises(ConfigError, match="expected the path of one file") as error:
        read_tree(tmp_path / "top.yml")
    assert "not-to-be-seen" not in str(error.value)


def test_a_circle_of_bases_is_an_error(tmp_path):
    """The error lists the files of the circle in order."""
    (tmp_path / "a.yml").write_text("base: b.yml\n")
    (tmp_path / "b.yml").write_text("base: a.yml\n")
    with pytest.raises(ConfigError, match=r"a.yml → .*b.yml → .*a.yml"):
        read_tree(tmp_path / "a.yml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: 3", "expected the path of one file, got 3"),
        ("base: nowhere.yml", r"nowhere.yml \(the `base:` of .*top.yml\) cannot be read: No such file"),
        ("a: [1", "not valid YAML"),
        ("- a", "expected sections such as `llms:` and `workflow:`, got a list"),
        ("a: 1\na: 2", "the key 'a' occurs twice"),
    ],
)
def test_unusable_files(tmp_path, text, message):
    """Each error of a file names it."""
    (tmp_path / "top.yml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_tree(tmp_path / "top.yml")


def raise_if_any(findings):
    if findings:
        raise ConfigError(findings)


def override(tree, *overrides):
    findings = []
    result = apply_overrides(tree, overrides, findings)
    raise_if_any(findings)
    return result


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5", 0.5), ("1e-6", 1e-6), ("true", True), ("null", None), ("[1, 2]", [1, 2]), ("a b", "a b"), ("'7'", "7")],
)
def test_the_value_is_yaml(text, value):
    """The value of an override may be any YAML, of another type than the old value."""
    assert override({"a": {"b": 0}}, ("a.b", text)) == {"a": {"b": value}}


def test_a_plus_appends_to_a_list():
    """Also to one that is missing; what is appended may be inside of it."""
    assert override({"a": [1]}, ("a.+", "2"), ("a.+", "x"), ("b.+.c", "3")) == {"a": [1, 2, "x"], "b": [{"c": 3}]}


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("a.b.c", "1", "0 has no key 'c'"),
        ("l.5", "1", "'5' is no item of a list of 1"),
        ("l.x", "1", "'x' is no item of a list of 1"),
        ("a.b", "[", "not valid YAML"),
        ("a..b", "1", "not a dotted path"),
    ],
)
def test_an_invalid_path_is_a_finding(path, text, message):
    """A path that leads nowhere is reported."""
    with pytest.raises(ConfigError, match=message):
        override({"a": {"b": 0}, "l": [1]}, (path, text))


ENVIRON = {"HOST": "http://h:1", "N": "5", "EMPTY": "", "ZEROS": "0042", "YES": "true", "STRUCTURE": "a: {b: 1}"}


def fill(value, environ=ENVIRON):
    findings = []
    filled, _ = expand_variables(value, environ, findings)
    raise_if_any(findings)
    return filled


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
    """A scalar that is only a variable is parsed as YAML; a variable inside a text stays text."""
    assert fill(text) == expected


def test_a_value_never_changes_the_structure():
    """A variable that looks like YAML structure is text, so a password may contain a colon."""
    assert fill({"a": "${STRUCTURE}"}) == {"a": "a: {b: 1}"}


def test_unset_variables_are_findings_with_path():
    """One error lists all unset variables with their places and a similar name that is set."""
    with pytest.raises(ConfigError) as caught:
        fill({"a": {"b": ["${HOSTT}"]}, "c": "${OTHER}"})
    assert len(caught.value.findings) == 2
    assert caught.value.findings[0].startswith("a.b.0: the environment variable HOSTT is not set")
    assert "Did you mean 'HOST'?" in caught.value.findings[0]
