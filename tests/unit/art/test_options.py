"""The options of a server for ART's clients."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from nat.art.options import ArtServeOptions


def options(**fields):
    return ArtServeOptions(model=Path("model"), **fields)


def test_the_defaults_are_arts():
    """Key, folder and adapters have ART's defaults; given options win."""
    art = options(port=7623, inference_port=8000)
    seen = (art.key_is_well_known, art.well_known_key, str(art.output_dir), art.lora_rank, art.lora_alpha)
    assert seen == (True, "default", ".art", 8, 16)
    chosen = options(port=7623, inference_port=8000, api_key="mine", output_dir="out", lora_rank=4, lora_alpha=32)
    seen = (chosen.key_is_well_known, str(chosen.output_dir), chosen.lora_rank, chosen.lora_alpha)
    assert seen == (False, "out", 4, 32)


@pytest.mark.parametrize("host", ["127.0.0.2", "::1", "localhost", "LOCALHOST"])
def test_the_well_known_key_is_for_loopback(host):
    """Loopback addresses may use the well-known key; a public address needs a chosen one."""
    assert options(port=1, inference_port=2, host=host).key_is_well_known
    with pytest.raises(ValidationError, match="needs a key that you set"):
        options(port=1, inference_port=2, host="192.0.2.1")


def test_the_two_ports_must_differ():
    """Equal ports are refused, except 0, which picks free ones."""
    with pytest.raises(ValidationError, match="choose two"):
        options(port=8000, inference_port=8000)
    assert options(port=0, inference_port=0).ports == {"port": 0, "inference_port": 0}
