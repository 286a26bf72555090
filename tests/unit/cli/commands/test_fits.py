"""`nat fits`: the report of a folder, as text and as JSON, and exit codes by verdict."""

import json
import shutil

import pytest
from click.testing import CliRunner

from fakes.tiny_model import make_tiny_model
from nat.backend.fits import fit_report
from nat.cli.commands.fits import fits_command, fits_page
from nat.errors import ModelUnavailable

pytestmark = pytest.mark.usefixtures("forked_processes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model without its weights."""
    made = make_tiny_model(tmp_path_factory.mktemp("fits") / "tiny", "qwen3")
    (made / "model.safetensors").unlink()
    return made


def run(*arguments: object):
    return CliRunner().invoke(fits_command, [str(each) for each in arguments])


def test_a_model_that_fits(folder):
    """The text has how answers are read and each way to train, and the exit code is 0."""
    result = run(folder, "--gpu", "16GB", "--max_seq_length", 64)
    assert result.exit_code == 0, result.output
    assert "qwen3 (Qwen3ForCausalLM)" in result.output
    assert "context 64 tokens" in result.output
    assert "tool calls are read" in result.output
    assert "15.2 GB may be taken; 32 chats at a time, rows of 64 tokens" in result.output
    for way in ("all weights, float32", "LoRA, rank 16, bfloat16", "LoRA, rank 16, 4 bits"):
        assert way in result.output
    assert "per token of a conversation" in result.output


def test_a_model_that_is_too_large(folder):
    """The JSON has each way with its bytes, and the exit code is 1."""
    result = run(folder, "--gpu", "0.1GB", "--json")
    shown = json.loads(result.stdout)
    assert result.exit_code == 1
    assert all(way["total"] > shown["available"] for way in shown["ways"])
    assert "may be taken" in shown["problems"][0]


def test_a_model_that_is_refused(folder, tmp_path):
    """What is wrong with the chat template is a problem by its name."""
    silent = shutil.copytree(folder, tmp_path / "silent")
    (silent / "chat_template.jinja").unlink()
    result = run(silent, "--gpu", "16 gb", "--json")
    assert result.exit_code == 1
    assert "no chat template" in json.loads(result.stdout)["problems"][0]


@pytest.mark.slow
def test_a_template_that_leaves_messages_out(folder, tmp_path):
    """The user knows it before a run is paid; the model fits all the same."""
    assert fit_report(folder, name="whole").left_out == []
    deaf = shutil.copytree(folder, tmp_path / "deaf")
    (deaf / "chat_template.jinja").write_text(
        "{% for m in messages if m.role != 'tool' %}{% if loop.first or m.role != 'system' %}{{ m.content }}{% endif %}"
        "{% endfor %}"
    )
    report = fit_report(deaf, name="deaf")
    systems = ["a second system message", "a system message at the end"]
    assert report.left_out == [*systems, "tool calls", "a tool's result"]
    assert "the chat template leaves out: a second system message, " in fits_page(report)
    assert report.problems == []


def test_an_architecture_that_is_not_supported(folder, tmp_path):
    """Nothing else is said of it."""
    other = shutil.copytree(folder, tmp_path / "other")
    (other / "config.json").write_text(json.dumps({"model_type": "vit"}))
    result = run(other, "--json")
    shown = json.loads(result.stdout)
    assert (result.exit_code, shown["family"], shown["ways"]) == (1, None, [])
    assert "vit" in shown["problems"][0]


@pytest.mark.parametrize("size", ["24", "GB", "0GB", "24 GiB", "-1GB", "9999999GB"])
def test_a_size_that_is_none_is_a_usage_error(folder, size: str):
    """The exit code is 2, and the message has an example."""
    result = run(folder, "--gpu", size)
    assert result.exit_code == 2
    assert "such as 24GB" in result.output


def test_a_path_that_is_no_model(tmp_path):
    """The error is that of every command that takes a model."""
    with pytest.raises(ModelUnavailable, match=r"has no config\.json"):
        raise run(tmp_path).exception
