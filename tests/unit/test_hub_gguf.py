"""GGUF files are converted once, and under the checksum of their content."""

import json
import logging
import os
import shutil
import sys
from pathlib import Path

import pytest

from fakes.gguf_files import make_gguf, rewritten
from fakes.made_once import made_once
from nat.cli.commands.backend import checked, with_folder
from nat.errors import ModelUnavailable
from nat.files import UNFINISHED
from nat.hub import converted, local_model
from nat.plugins.local.llm import LocalModelConfig
from nat.wire.model_folder import is_model, num_parameters

T5 = {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}
pytestmark = pytest.mark.usefixtures("forked_processes")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """The cache of a user who has none yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nat" / "gguf"


@pytest.fixture
def file(shared_folder, tmp_path) -> Path:
    made = made_once(shared_folder / "gguf", lambda folder: make_gguf(folder / "tiny.gguf"))
    return Path(shutil.copyfile(made / "tiny.gguf", tmp_path / "tiny.gguf"))


@pytest.fixture
def whole(file, cache, shared_folder) -> Path:
    """The folder of the file's model, which was converted before the test; a conversion takes five seconds."""

    def convert(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(folder))
            converted(file)

    shutil.copytree(made_once(shared_folder / "gguf_cache", convert), cache.parents[1])
    return converted(file)


def said(caplog) -> list[str]:
    """What this project logged; a library in the same process may log too."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("nat.")]


def test_a_file_is_converted_once(file, caplog, tmp_path):
    """The console says what was read, to which type and how large it is; a renamed file is found by its content."""
    caplog.set_level(logging.INFO)
    folder = local_model(file).folder
    assert (is_model(folder), num_parameters(folder), folder.name) == (True, 41696, "tiny")
    first, last = said(caplog)
    assert first == f"converting {file} (0 MiB) to safetensors, once"
    assert last == f"tiny.gguf: read from F32 to float32, 0 MiB in {folder}"
    file.rename(tmp_path / "sha256-of-ollama")
    assert local_model(tmp_path / "sha256-of-ollama").folder == folder
    assert len(said(caplog)) == 2


def test_a_killed_conversion_leaves_nothing_half(file, whole):
    """What it had written is not taken for a model, and goes away with the next conversion."""
    half = whole.with_name(f"{UNFINISHED}half")
    whole.rename(half)
    assert converted(file) == whole
    assert [path.name for path in sorted(whole.parent.iterdir())] == ["lock", "tiny"]


def test_a_run_records_the_converted_folder(file, whole, tmp_path):
    """A changed file is another model: its folder is another one, so a run that goes on keeps its weights."""
    block = LocalModelConfig(model=file)
    pinned = block.pinned()
    assert pinned.model == whole
    assert (pinned.served_name, pinned.pinned()) == ("tiny.gguf", pinned)
    rewritten(file, tmp_path / "other.gguf", values={"general.name": "another"}).replace(file)
    assert block.pinned().model.parent != pinned.model.parent


def test_a_server_gets_the_folder_and_keeps_the_files_name(file, whole):
    """`nat backend serve` converts before the backend starts; clients ask for the model by the name of the file."""
    options = with_folder(checked({"model": file}, {}), None)
    assert options.model == whole
    assert options.served_model_name == "tiny.gguf"


def test_what_cannot_be_converted_says_why(tmp_path, cache):
    """The error names the file and what to do, and no folder is left."""
    for name, data, message in (
        (
            "model.safetensors",
            b"\x40\0\0\0",
            "model.safetensors is no GGUF file\n.*the directory of a Hugging Face model",
        ),
        ("model.gguf", b"GGUF", "model.gguf is no GGUF file, or is cut off"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ModelUnavailable, match=message):
            local_model(tmp_path / name)
    assert not any(map(is_model, cache.rglob("*")))


@pytest.mark.parametrize("kind", [{"architectures": ["BertForMaskedLM"]}, T5])
def test_a_model_of_another_kind_is_refused(tmp_path, kind):
    """An encoder has a configuration and a tokenizer, too; it writes no text."""
    (tmp_path / "config.json").write_text(json.dumps(kind))
    with pytest.raises(ModelUnavailable, match=f"is a {kind['architectures'][0]}, not a causal language model"):
        local_model(tmp_path)


def test_a_missing_file_or_package_and_a_revision_are_refused(file, tmp_path, monkeypatch):
    """A name that ends in .gguf is no name of the Hub; the command that installs the package is in the error."""
    with pytest.raises(ModelUnavailable, match=r"lost\.gguf does not exist\n.*or a \.gguf file"):
        local_model("lost.gguf")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelUnavailable, match=r"pipe\.gguf is neither a file nor a directory\n"):
        local_model(tmp_path / "pipe.gguf")
    with pytest.raises(ModelUnavailable, match="is a file, which has no revision 'main'"):
        local_model(file, "main")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelUnavailable, match=r"not installed: gguf\n.*pip install"):
        local_model(file)
