import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from nat.art.options import ArtServeOptions
from nat.secrets import redact
from nat.wire.serving import ServeOptions, handover, options_class, received


def options(**fields):
    return ServeOptions(model=Path("model"), **fields)


def test_resume_needs_a_folder():
    """Resuming reads the checkpoints in the folder."""
    with pytest.raises(ValidationError, match="resume needs output_dir"):
        options(resume=True)


def test_an_option_chooses_the_protocol():
    """A protocol's option selects the class that checks the options; without it, the backend's own does."""
    assert options_class({"model", "inference_port", "max_models"}) is ArtServeOptions
    assert options_class({"model", "port"}) is ServeOptions


def test_a_handover_has_the_options_with_their_keys():
    """What was given arrives, in the class of its protocol; the rest keeps its default, and secrets are redacted."""
    given = ArtServeOptions(model=Path("model"), inference_port=0, resume=True, api_key="key-of-a-server-1")
    found = received(handover(given, ["token-of-a-user-1"]))
    assert type(found) is ArtServeOptions
    assert (found, found.model_fields_set) == (given, given.model_fields_set)
    assert redact("key-of-a-server-1 token-of-a-user-1") == "********** **********"


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:٣", "CPU", ""])
def test_what_is_no_device_is_refused(name):
    """With the names that there are."""
    with pytest.raises(ValidationError, match=rf"expected 'auto', .*, got '{name}'"):
        options(device=name)


def test_a_mapping_may_be_json_or_a_file(tmp_path):
    """All three mean the same, so the recorded configuration has the mapping."""
    file, mapping = tmp_path / "format.json", {"fields": {"content": {}}}
    file.write_text(json.dumps(mapping))
    for given in (mapping, json.dumps(mapping), str(file)):
        assert options(response_template=given).response_template == mapping


@pytest.mark.parametrize("given", ["{nonsense", "no/such/file.json", "[1]", 3])
def test_anything_else_is_refused(given):
    """The error has what was given and what was wanted."""
    with pytest.raises(ValidationError, match=r"expected a mapping|valid dictionary"):
        options(chat_template_kwargs=given)
