from pathlib import Path

import pytest
from pydantic import ValidationError

from nat.art.options import ArtServeOptions
from nat.secrets import redact
from nat.wire.serving import ServeOptions, handover, options_class, received


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


@pytest.mark.parametrize("name", ["max_models"])
def test_options_of_a_protocol_need_its_switch(name):
    """Without the protocol's option, its other options have no effect; the error names it."""
    with pytest.raises(ValueError, match=f"{name}: no effect without inference_port"):
        options_class({"model", name})


def test_a_server_has_one_protocol():
    """Options that choose one each are an error that names both, not an unknown key."""
    with pytest.raises(ValueError, match="inference_port and protocol: a server has one protocol"):
        options_class({"model", "inference_port", "protocol"})


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


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:15"])
def test_devices_have_torchs_names(name):
    """A number chooses one of several GPUs."""
    assert options(device=name).device == name


def test_an_option_of_two_protocols_names_both():
    """Either of their switches gives it its effect."""
    with pytest.raises(ValueError, match=r"max_models: no effect without inference_port or protocol; leave it out"):
        options_class({"model", "max_models"})
