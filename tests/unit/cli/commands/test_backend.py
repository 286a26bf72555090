"""`nat backend serve` hands its options on to the backend's process."""

import json
import os

import pytest
from click.testing import CliRunner

from nat.cli.commands.backend import backend_arguments, backend_command, backend_environment, checked, handover_pipe
from nat.errors import ConfigError
from nat.wire.serving import ServeOptions

EVERYWHERE = "0.0.0.0"  # noqa: S104 - it is to be refused


def test_every_field_is_an_option():
    """The help names each option of the process, so that none can be added without being offered."""
    text = CliRunner().invoke(backend_command, ["serve", "--help"]).output
    assert [name for name in ServeOptions.model_fields if f"--{name}" not in text] == []
    assert "[default: 127.0.0.1]" in " ".join(text.split())


def test_given_options_travel_as_arguments(tmp_path):
    """What was given is handed on, what was not is left to the process."""
    options = checked({"model": tmp_path, "port": 0, "resume": True, "output_dir": tmp_path}, {})
    expected = ["--model", str(tmp_path), "--output_dir", str(tmp_path), "--port", "0", "--resume"]
    assert backend_arguments(options) == expected


def test_the_key_travels_through_a_pipe(tmp_path):
    """A key shows in no argument and in no environment of the process that serves; an option beats the environment."""
    environment = {"NAT_BACKEND_API_KEY": "theirs", "HF_TOKEN": "of-the-user-1", "A": "b"}
    options = checked({"model": tmp_path, "api_key": "mine"}, environment)
    assert not any("mine" in argument for argument in backend_arguments(options))
    assert backend_environment(environment) == {"HF_TOKEN": "of-the-user-1", "A": "b"}
    with os.fdopen(handover_pipe(options, environment)) as pipe:
        secrets = ["theirs", "of-the-user-1"]
        assert json.loads(pipe.read()) == {"api_key": "mine", "secrets": secrets}


def test_a_public_address_needs_a_chosen_key(tmp_path):
    """0.0.0.0 without a key is refused with the remedy; with one from the environment it is served."""
    with pytest.raises(ConfigError, match="NAT_BACKEND_API_KEY"):
        checked({"model": tmp_path, "host": EVERYWHERE}, {})
    assert checked({"model": tmp_path, "host": EVERYWHERE}, {"NAT_BACKEND_API_KEY": "k"}).host == EVERYWHERE


def test_all_findings_at_once(tmp_path):
    """Each wrong option is named in one error."""
    with pytest.raises(ConfigError) as error:
        checked({"model": tmp_path, "port": -1, "keep_last": 0}, {})
    assert len(error.value.findings) == 2
