from pathlib import Path

import pytest
from pydantic import ValidationError

from nat.wire.serving import ServeOptions


def options(**fields):
    return ServeOptions(model=Path("model"), **fields)


def test_a_server_for_art_has_arts_defaults():
    """Its key, its folder and its adapters; what was chosen wins."""
    art = options(port=7623, inference_port=8000)
    assert (art.well_known_key, str(art.art_output_dir), art.art_lora) == (True, ".art", (8, 16))
    chosen = options(port=7623, inference_port=8000, api_key="mine", output_dir="out", lora_rank=4, lora_alpha=32)
    assert (chosen.well_known_key, str(chosen.art_output_dir), chosen.art_lora) == (False, "out", (4, 32))


def test_a_server_of_one_model_has_no_well_known_key():
    """Only ART's clients need one."""
    assert not options().well_known_key


@pytest.mark.parametrize("host", ["127.0.0.2", "::1", "localhost", "LOCALHOST"])
def test_the_well_known_key_is_for_loopback(host):
    """All of it; an address that others can reach needs a key of its own."""
    assert options(port=1, inference_port=2, host=host).well_known_key
    with pytest.raises(ValidationError, match="the key must be yours"):
        options(port=1, inference_port=2, host="192.0.2.1")


@pytest.mark.parametrize("name", ["save_every", "keep_last"])
def test_options_without_effect_are_refused(name):
    """For ART's clients each call is a checkpoint, and they say what to delete."""
    with pytest.raises(ValidationError, match=f"{name}: no effect"):
        options(port=1, inference_port=2, **{name: 3})


def test_two_ports_are_two():
    """Unless any free ones are asked for."""
    with pytest.raises(ValidationError, match="choose two"):
        options(port=8000, inference_port=8000)
    assert options(port=0, inference_port=0).inference_port == 0


def test_going_on_is_what_a_server_for_art_does():
    """So resume may be said, with or without a folder; elsewhere it needs one."""
    assert options(port=1, inference_port=2, resume=True).resume
    with pytest.raises(ValidationError, match="resume needs output_dir"):
        options(resume=True)


def test_buckets_are_named_by_the_owner_of_a_server_for_art():
    """With commas between them; other servers have no use for them."""
    assert options(inference_port=8001, s3_buckets="mine,our.own").buckets == ["mine", "our.own"]
    assert options(inference_port=8001).buckets == []
    for wrong in ({"s3_buckets": "mine"}, {"inference_port": 8001, "s3_buckets": "--delete"}):
        with pytest.raises(ValidationError, match="s3_buckets"):
            options(**wrong)
