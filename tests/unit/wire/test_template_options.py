"""Options of a chat template: a mapping in YAML, JSON on a command line, or a file."""

import json
import os

import pytest
from pydantic import TypeAdapter, ValidationError

from nat.wire.template_options import ConfiguredVariables, ResponseTemplate

VARIABLES = TypeAdapter(ConfiguredVariables)


def test_a_mapping_may_be_json_or_a_file(tmp_path):
    """All three mean the same, so the recorded configuration has the mapping."""
    file, mapping = tmp_path / "format.json", {"fields": {"content": {}}}
    file.write_text(json.dumps(mapping))
    for given in (mapping, json.dumps(mapping), str(file)):
        assert TypeAdapter(ResponseTemplate).validate_python(given) == mapping
    assert VARIABLES.validate_python('{"enable_thinking": false}') == {"enable_thinking": False}


@pytest.mark.parametrize("given", ["{nonsense", "no/such/file.json", "[1]", 3])
def test_anything_else_is_refused(given):
    """The error has what was given and what was wanted."""
    with pytest.raises(ValidationError, match=r"expected a mapping|valid dictionary"):
        VARIABLES.validate_python(given)


@pytest.mark.parametrize(
    ("kind", "said"), [("fifo", "not a file"), ("folder", "not a file"), ("large", "at most 1048576")]
)
def test_a_path_of_a_small_file_is_read_alone(tmp_path, kind, said):
    """Reading a FIFO or a device would not end, and a format has a few lines."""
    path = tmp_path / "given"
    make = {"fifo": os.mkfifo, "folder": os.mkdir, "large": lambda path: path.write_text(" " * 2**21)}
    make[kind](path)
    with pytest.raises(ValidationError, match=said):
        TypeAdapter(ResponseTemplate).validate_python(str(path))


@pytest.mark.parametrize("name", ["chat_template", "messages", "tools", "strftime_now", "eos_token"])
def test_arguments_of_the_renderer_are_no_variables(name):
    """A configuration names them before anything is loaded."""
    with pytest.raises(ValidationError, match=f"{name}: not a variable of a chat template"):
        VARIABLES.validate_python({name: "x", "thinking": True})


def test_variables_are_short():
    """They are sent to the template's process with each rendering."""
    with pytest.raises(ValidationError, match="at most 10000"):
        VARIABLES.validate_python({"note": "a" * 20_000})
