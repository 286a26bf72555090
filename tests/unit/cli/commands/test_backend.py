"""`nat backend serve` passes its options to the backend's process."""

import json
import os

import pytest
from click.testing import CliRunner

from nat.cli.commands.backend import backend_command, backend_environment, checked, handover_pipe, serve_command
from nat.errors import ConfigError
from nat.wire.serving import ServeOptions

EVERYWHERE = "0.0.0.0"


def test_every_field_is_an_option():
    """The help lists every option of the process, so none is missing."""
    text = CliRunner().invoke(backend_command, ["serve", "--help"]).output
    assert [name for name in ServeOptions.model_fields if f"--{name}" not in text] == []
    assert "[default: 127.0.0.1]" in " ".join(text.split())


def test_options_of_protocols_follow_the_backends_own():
    """A required option comes first; one that a protocol shares has the backend's description."""
    options = {option.name: option for option in serve_command.params}
    own = list(options)[: len(ServeOptions.model_fields)]
    assert (own[0], set(own)) == ("model", set(ServeOptions.model_fields))
    assert "inference_port" in options
    assert options["output_dir"].help.startswith(ServeOptions.model_fields["output_dir"].description)


def test_the_options_travel_through_a_pipe(tmp_path):
    """Those that are given, with the key, which no environment variable has; an option wins over the environment."""
    environment = {"NAT_BACKEND_API_KEY": "theirs", "HF_TOKEN": "of-the-user-1", "A": "b"}
    options = checked({"model": tmp_path, "api_key": "mine"}, environment)
    assert backend_environment(environment) == {"HF_TOKEN": "of-the-user-1", "A": "b"}
    with os.fdopen(handover_pipe(options, environment)) as pipe:
        secrets = ["theirs", "of-the-user-1"]
        sent = {"model": str(tmp_path), "api_key": "mine"}
        kind = "nat.wire.serving:ServeOptions"
        assert json.loads(pipe.read()) == {"class": kind, "options": sent, "secrets": secrets}


def test_the_key_of_vllm_travels_with_it(tmp_path):
    """Only to a server at a URL; without one, a variable that is set for something else changes nothing."""
    environment = {"VLLM_API_KEY": "key-of-vllm-1"}
    assert checked({"model": tmp_path, "engine": "vllm"}, environment).vllm_api_key is None
    options = checked({"model": tmp_path, "engine": "vllm", "vllm_url": "http://127.0.0.1:1"}, environment)
    assert "key-of-vllm-1" not in str(backend_environment(environment))
    with os.fdopen(handover_pipe(options, environment)) as pipe:
        assert json.loads(pipe.read())["options"]["vllm_api_key"] == "key-of-vllm-1"


def test_what_is_too_long_for_the_pipe_is_told(tmp_path, capsys):
    """Nobody reads it before the command has become the backend, so a longer text would wait for ever."""
    options = checked({"model": tmp_path}, {})
    with os.fdopen(handover_pipe(options, {"HF_TOKEN": "t" * 20_000})) as pipe:
        assert json.loads(pipe.read())["secrets"] == []
    assert "the log may show them" in capsys.readouterr().err
    long = options.model_copy(update={"served_model_name": "n" * 20_000})
    with pytest.raises(ConfigError, match="bytes; at most 16384 can be handed to the backend's process"):
        handover_pipe(long, {})


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


@pytest.mark.parametrize(
    ("others", "said"), [({}, "set lora_rank"), ({"lora_rank": 4, "engine": "vllm"}, "use engine embedded")]
)
def test_four_bits_need_lora_and_our_engine(tmp_path, others, said):
    """Weights of four bits cannot be trained, and vLLM would sample from others."""
    with pytest.raises(ConfigError, match=said):
        checked({"model": tmp_path, "load_in_4bit": True, **others}, {})
