"""`nat backend serve` passes its options to the backend's process."""

import json
import os

import pytest
from click.testing import CliRunner

from nat.cli.commands.backend import backend_command, backend_environment, checked, handover_pipe
from nat.errors import ConfigError
from nat.wire.serving import ServeOptions, backend_arguments

EVERYWHERE = "0.0.0.0"  # noqa: S104 - it is to be refused


def test_every_field_is_an_option():
    """The help lists every option of the process, so none is missing."""
    text = CliRunner().invoke(backend_command, ["serve", "--help"]).output
    assert [name for name in ServeOptions.model_fields if f"--{name}" not in text] == []
    assert "[default: 127.0.0.1]" in " ".join(text.split())


def test_given_options_are_passed_as_arguments(tmp_path):
    """Given options are passed; the process sets the defaults of others."""
    options = checked({"model": tmp_path, "port": 0, "resume": True, "output_dir": tmp_path}, {})
    expected = [f"--model={tmp_path}", f"--output_dir={tmp_path}", "--port=0", "--resume"]
    assert backend_arguments(options) == expected


def test_a_number_or_a_word_is_read_as_either(tmp_path):
    """`--save_every auto` reaches the class of the options, which alone knows what is allowed."""
    (tmp_path / "model").mkdir()
    for given in ("auto", "3"):
        options = ["--model", str(tmp_path / "model"), "--output_dir", str(tmp_path), "--save_every", given]
        result = CliRunner().invoke(backend_command, ["serve", *options, "--port", "-1"])
        assert isinstance(result.exception, ConfigError)
        assert [finding.partition(":")[0] for finding in result.exception.findings] == ["port"]


def test_the_key_travels_through_a_pipe(tmp_path):
    """The key is in no argument and no environment variable of the process; an option wins over the environment."""
    environment = {"NAT_BACKEND_API_KEY": "theirs", "HF_TOKEN": "of-the-user-1", "A": "b"}
    options = checked({"model": tmp_path, "api_key": "mine"}, environment)
    assert not any("mine" in argument for argument in backend_arguments(options))
    assert backend_environment(environment) == {"HF_TOKEN": "of-the-user-1", "A": "b"}
    with os.fdopen(handover_pipe(options, environment)) as pipe:
        secrets = ["theirs", "of-the-user-1"]
        assert json.loads(pipe.read()) == {"api_key": "mine", "secrets": secrets}


def test_the_key_of_vllm_travels_with_it(tmp_path):
    """Only to a server at a URL; without one, a variable that is set for something else changes nothing."""
    environment = {"VLLM_API_KEY": "key-of-vllm-1"}
    assert checked({"model": tmp_path, "engine": "vllm"}, environment).vllm_api_key is None
    options = checked({"model": tmp_path, "engine": "vllm", "vllm_url": "http://127.0.0.1:1"}, environment)
    assert "key-of-vllm-1" not in " ".join(backend_arguments(options)) + str(backend_environment(environment))
    with os.fdopen(handover_pipe(options, environment)) as pipe:
        assert json.loads(pipe.read())["vllm_api_key"] == "key-of-vllm-1"


def test_a_public_address_needs_a_chosen_key(tmp_path):
    """0.0.0.0 without a key is refused with a remedy; a key in the environment is enough."""
    with pytest.raises(ConfigError, match="NAT_BACKEND_API_KEY"):
        checked({"model": tmp_path, "host": EVERYWHERE}, {})
    assert checked({"model": tmp_path, "host": EVERYWHERE}, {"NAT_BACKEND_API_KEY": "k"}).host == EVERYWHERE


def test_all_findings_are_reported_at_once(tmp_path):
    """One error names each wrong option."""
    with pytest.raises(ConfigError) as error:
        checked({"model": tmp_path, "port": -1, "keep_last": 0}, {})
    assert len(error.value.findings) == 2
