"""The command line's options for Tinker's clients."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from nat.tinker.options import TinkerServeOptions


def options(**fields):
    return TinkerServeOptions(model=Path("model"), protocol="tinker", **fields)


def test_the_defaults_fit_the_official_clients():
    """A folder of its own, loopback, keys with the clients' prefix, and as many models as for ART."""
    chosen = options()
    assert (chosen.host, str(chosen.output_dir), chosen.key_prefix) == ("127.0.0.1", ".tinker", "tml-")
    assert (chosen.lora_rank, chosen.lora_alpha, chosen.max_models) == (32, 32, 16)
    assert not chosen.key_is_well_known


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"api_key": "key"}, "begin with 'tml-'"),
        ({"all_weights": True, "load_in_4bit": True}, "all_weights: those of four bits cannot be trained"),
        ({"engine": "vllm"}, "engine vllm: protocol serves several models"),
        ({"host": "0.0.0.0"}, "key"),
    ],
)
def test_what_does_not_fit_is_refused(fields, finding):
    """A key that no client accepts, and a public address without a key."""
    with pytest.raises(ValidationError, match=finding):
        options(**fields)
