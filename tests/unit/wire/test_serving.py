from pathlib import Path

import pytest
from pydantic import ValidationError

from nat.art.options import ArtServeOptions
from nat.wire.serving import ServeOptions, command_line_options, options_class


def options(**fields):
    return ServeOptions(model=Path("model"), **fields)


def test_a_server_of_one_model_has_no_well_known_key():
    """Only clients of other protocols need a well-known key."""
    assert not options().key_is_well_known


def test_resume_needs_a_folder():
    """Resuming reads the checkpoints in the folder."""
    with pytest.raises(ValidationError, match="resume needs output_dir"):
        options(resume=True)


def test_an_option_chooses_the_protocol():
    """A protocol's option selects the class that checks the options; without it, the backend's own does."""
    assert options_class({"model", "inference_port", "max_models"}) is ArtServeOptions
    assert options_class({"model", "port"}) is ServeOptions


@pytest.mark.parametrize("name", ["max_models", "s3_buckets"])
def test_options_of_a_protocol_need_its_switch(name):
    """Without the protocol's option, its other options have no effect; the error names it."""
    with pytest.raises(ValueError, match=f"{name}: no effect without inference_port"):
        options_class({"model", name})


def test_options_of_protocols_follow_the_backends_own():
    """All options are listed; a shared one has the backend's description."""
    names = list(command_line_options())
    assert set(names[: len(ServeOptions.model_fields)]) == set(ServeOptions.model_fields)
    assert names[0] == "model", "which is required"
    assert "inference_port" in names
    assert command_line_options()["output_dir"].description == ServeOptions.model_fields["output_dir"].description


def test_a_wrong_save_every_is_one_error():
    """A number of updates or `auto`: who gives neither reads both in one message, at the key."""
    for wrong in (0, "never"):
        with pytest.raises(ValidationError) as error:
            options(save_every=wrong)
        assert [(found["loc"], found["msg"]) for found in error.value.errors()] == [
            (("save_every",), "Value error, Input should be a number of updates, at least 1, or 'auto'")
        ]
    assert (options(save_every="3").save_every, options(save_every="auto").save_every) == (3, "auto")
