"""Folders of models, read without torch."""

import json

import pytest
from transformers import AutoModelForCausalLM

from fakes.tiny_model import make_tiny_model
from nat.wire.model_folder import (
    ADAPTER_CONFIG,
    MANIFEST,
    WEIGHTS_INDEX,
    has_chat_template,
    indexed_files,
    num_parameters,
    read_manifest,
)


@pytest.mark.parametrize(
    ("files", "has"),
    [
        ({"chat_template.jinja": "{{ messages }}"}, True),
        ({"tokenizer_config.json": '{"chat_template": "{{ messages }}"}'}, True),
        ({"tokenizer_config.json": '{"chat_template": null}'}, False),
        ({"config.json": "{}"}, False),
        ({"adapter_config.json": "{}"}, True),
    ],
)
def test_a_chat_template_is_found_without_the_tokenizer(tmp_path, files, has):
    """Each place where transformers looks for it; that of an adapter may be with its base model."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert has_chat_template(tmp_path) is has


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_weights_are_counted_by_their_headers(tmp_path, kind):
    """The count is that of the loaded model: a tied output layer counts once."""
    folder = make_tiny_model(tmp_path / "model", kind)
    assert num_parameters(folder) == AutoModelForCausalLM.from_pretrained(folder).num_parameters()


def test_weights_in_several_files_are_counted_once_each(tmp_path):
    """The index names the files; another one beside them, such as an optimizer's state, does not count."""
    folder = make_tiny_model(tmp_path / "model")
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(tmp_path / "parts", max_shard_size="50KB")
    parts = sorted((tmp_path / "parts").glob("model-*.safetensors"))
    (tmp_path / "parts" / "optimizer.safetensors").write_bytes(parts[0].read_bytes())
    assert len(parts) > 1
    assert num_parameters(tmp_path / "parts") == num_parameters(folder)


def test_an_adapter_has_the_size_of_its_base(tmp_path):
    """What samples is the base model with the adapter."""
    base = make_tiny_model(tmp_path / "model")
    (tmp_path / ADAPTER_CONFIG).write_text(json.dumps({"base_model_name_or_path": str(base)}))
    assert num_parameters(tmp_path) == num_parameters(base)


@pytest.mark.parametrize("name", ["../private", "/etc/passwd", "sub/../../private"])
def test_a_manifest_names_files_of_its_folder(tmp_path, name):
    """Sizes and checksums of a stranger's manifest would tell about other files of this machine."""
    files = {name: {"bytes": 1, "sha256": "0" * 64}}
    (tmp_path / MANIFEST).write_text(json.dumps({"kind": "export", "files": files}))
    with pytest.raises(ValueError, match="wanted is a file"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["../outside.safetensors", "{root}/outside.safetensors", "link.safetensors", "sub/../../o", "config.json", "", 7],
)
def test_an_index_names_files_of_its_folder(tmp_path, name):
    """Another file of this machine would become weights, which a client can export; no other kind of file can."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (folder / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    index = {"metadata": {}, "weight_map": {"w": str(name).format(root=tmp_path)}}
    (folder / WEIGHTS_INDEX).write_text(json.dumps(index))
    with pytest.raises(ValueError, match="wanted is a file"):
        num_parameters(folder)


def test_an_index_in_the_hubs_cache_names_its_blobs(tmp_path):
    """The Hub's cache keeps a model's files beside its folder and links to them, and to no others."""
    repository = tmp_path / "models--org--name"
    folder = repository / "snapshots" / ("0" * 40)
    folder.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "abc").write_bytes(b"")
    (folder / "part.safetensors").symlink_to("../../blobs/abc")
    index = folder / WEIGHTS_INDEX
    index.write_text(json.dumps({"weight_map": {"w": "part.safetensors"}}))
    assert indexed_files(index) == {folder / "part.safetensors"}
    (tmp_path / "private").write_bytes(b"")
    (folder / "part.safetensors").unlink()
    (folder / "part.safetensors").symlink_to(tmp_path / "private")
    with pytest.raises(ValueError, match="wanted is a file"):
        indexed_files(index)
