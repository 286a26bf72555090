import pytest
from pydantic import ValidationError

from nat.art.client.config import (
    ARTBackendConfig,
    ARTTrainerAdapterConfig,
)

WHERE = {"ip": "localhost", "port": 7623}


@pytest.mark.parametrize("block", ["backend", "training"])
def test_a_typo_is_an_error(block):
    """A misspelt key is an error, because it would be an option without effect."""
    with pytest.raises(ValidationError, match="lerning_rate"):
        ARTTrainerAdapterConfig(
            **{"backend": WHERE, block: {**(WHERE if block == "backend" else {}), "lerning_rate": 1}}
        )


@pytest.mark.parametrize("block", ["init_args", "engine_args", "peft_args", "torchtune_args", "server_config"])
def test_options_of_other_programs_are_sent(block):
    """Unknown keys of nested blocks are sent; the server checks them."""
    config = ARTBackendConfig(**WHERE, **{block: {"enable_prefix_caching": True}})
    found = getattr(config, block)
    assert (found if isinstance(found, dict) else found.model_extra) == {"enable_prefix_caching": True}


def test_the_key_is_not_shown():
    """The key is in no log and not in the resolved configuration of a run."""
    assert "sk-1" not in repr(ARTBackendConfig(**WHERE, api_key="sk-1"))


@pytest.mark.parametrize(
    ("ip", "url"),
    [
        ("localhost", "http://localhost:7623"),
        ("10.0.0.5", "http://10.0.0.5:7623"),
        ("gpu-box", "http://gpu-box:7623"),
        ("0.0.0.0", "http://localhost:7623"),
        ("::1", "http://[::1]:7623"),
    ],
)
def test_the_address_as_a_url(ip, url):
    """A server listens on the guide's 0.0.0.0; a client connects to this machine instead."""
    assert ARTBackendConfig(ip=ip, port=7623).base_url == url


@pytest.mark.parametrize("ip", ["http://localhost", "localhost:7623", "host/path", "user@host", ""])
def test_the_ip_is_a_host_alone(ip):
    """A URL as `ip` is refused, because it would be put into another URL."""
    with pytest.raises(ValidationError):
        ARTBackendConfig(ip=ip, port=7623)
