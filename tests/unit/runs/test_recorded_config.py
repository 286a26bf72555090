"""Configurations in journals."""

from nat.runs.recorded_config import config_of


def test_a_configuration_is_read():
    """As `nat` writes it."""
    assert config_of("llms:\n  student: {model: small}\n") == {"llms": {"student": {"model": "small"}}}
