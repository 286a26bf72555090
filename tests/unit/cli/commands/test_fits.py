"""`nat fits`: the certificate of a folder, as text and as JSON, and exit codes by verdict."""

import json
import shutil

import pytest
from click.testing import CliRunner

from fakes.tiny_model import make_tiny_model
from nat.cli.commands.fits import fits_command
from nat.errors import ModelUnavailable
from nat.sizing.certificate import Certificate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model without its weights."""
    made = make_tiny_model(tmp_path_factory.mktemp("fits") / "tiny", "qwen3")
    (made / "model.safetensors").unlink()
    return made


def run(*arguments: object):
    return CliRunner().invoke(fits_command, [str(each) for each in arguments])


def test_a_model_that_fits(folder):
    """The text ends with the block for the YAML, and the exit code is 0."""
    result = run(folder, "--gpu", "16GB", "--max_seq_length", 64)
    assert result.exit_code == 0, result.output
    assert f"✓ {folder}: it fits by prediction; what has a ✓ is proven" in result.output
    assert "context 64 tokens" in result.output
    assert f"model: {folder}" in result.output


def test_a_model_that_is_refused(folder, tmp_path):
    """The JSON has the reasons, and the exit code is 1."""
    silent = shutil.copytree(folder, tmp_path / "silent")
    (silent / "chat_template.jinja").unlink()
    result = run(silent, "--gpu", "16 gb", "--json")
    shown = json.loads(result.stdout)
    assert (result.exit_code, shown["fits"]) == (1, False)
    assert "no chat template" in shown["problems"][0]
    assert shown["device"] == "a GPU of 16.0 GB"
    assert shown.keys() == {*Certificate.model_fields, "fits", "problems"}


@pytest.mark.parametrize("size", ["24", "GB", "0GB", "24 GiB", "-1GB", "9999999GB"])
def test_a_size_that_is_none_is_a_usage_error(folder, size: str):
    """The exit code is 2, and the message has an example."""
    result = run(folder, "--gpu", size)
    assert result.exit_code == 2
    assert "expected the memory of a GPU, such as 24GB" in result.output


def test_the_speed_of_this_machine(folder):
    """It is measured with the block of the YAML, in a process of its own."""
    result = run(folder, "--time", "--max_seq_length", 64, "--json")
    shown = json.loads(result.stdout)
    assert (result.exit_code, shown["untimed"]) == (0, None)
    assert shown["speed"]["trained_tokens_per_second"] > 0


def test_the_speed_of_another_machine_is_no_measurement(folder):
    """It would be that of this one."""
    result = run(folder, "--time", "--gpu", "24GB")
    assert result.exit_code == 2
    assert "give one of them" in result.output


def test_a_path_that_is_no_model(tmp_path):
    """The error is that of every command that takes a model."""
    with pytest.raises(ModelUnavailable, match=r"has no config\.json"):
        raise run(tmp_path).exception


def test_text_that_is_no_unicode_is_shown(folder, tmp_path):
    """A template may refuse messages with lone surrogates, which no file of UTF-8 can hold."""
    odd = shutil.copytree(folder, tmp_path / "odd")
    (odd / "chat_template.jinja").write_text(r"{{ raise_exception('not \ud800 here') }}")
    result = run(odd, "--gpu", "16GB", "--json")
    assert result.exit_code == 1, result.exception
    assert r"not \ud800 here" in json.loads(result.stdout)["problems"][0]


def test_a_folder_that_asks_for_any_memory_is_refused(folder, tmp_path):
    """A configuration of gigabytes ends in an error before it takes the machine's memory."""
    huge = shutil.copytree(folder, tmp_path / "huge")
    with (huge / "config.json").open("wb") as file:
        file.truncate(2**33)
    result = run(huge, "--gpu", "16GB")
    assert result.exit_code == 1
    assert "cannot be loaded: MemoryError" in result.output


def test_a_judgement_that_does_not_end_is_stopped(folder, tmp_path, monkeypatch):
    """A model of a billion layers would be counted for days; the error says what took the time."""
    endless = shutil.copytree(folder, tmp_path / "endless")
    config = json.loads((endless / "config.json").read_text())
    (endless / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10**9, "layer_types": None}))
    monkeypatch.setattr("nat.cli.commands.fits.JUDGING_SECONDS", 0.5)
    with pytest.raises(ModelUnavailable, match=r"cannot be judged: .+: it takes more than 0\.5 s"):
        raise run(endless).exception
