import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BloomConfig

from fakes.tiny_model import tiny_tokenizer
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import fastest_dtype, load_model
from nat.errors import CheckpointDamaged, ModelNotSupported

ROWS = PackedRows.of([[5, 6, 7], [8, 9]])


def save(config, path):
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


def test_a_checkpoint_has_end_tokens_and_a_length(tiny_dir):
    """The end-of-sequence ids come from the generation config and the tokenizer, the length from the positions."""
    loaded = load_model(tiny_dir("llama"))
    assert loaded.eos_token_ids == {loaded.tokenizer.eos_token_id}
    assert loaded.max_seq_length == 512
    assert load_model(tiny_dir("llama"), max_seq_length=64).max_seq_length == 64


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_lora_starts_at_the_base_model_and_trains_only_the_adapter(tiny_dir, kind):
    """B starts at zero, so the outputs are the base's; every linear layer gets an adapter, and the base is frozen."""
    base, lora = load_model(tiny_dir(kind)), load_model(tiny_dir(kind), lora=LoraSettings(rank=2))
    with torch.no_grad():
        torch.testing.assert_close(packed_logits(lora.model, ROWS), packed_logits(base.model, ROWS))
    names = lora.trainable_parameters()
    assert names
    assert all("lora_" in name for name in names)
    assert base.peft is None
    assert len(base.trainable_parameters()) == len(list(base.model.parameters()))


@pytest.mark.parametrize(
    ("device", "num_weights", "amx", "dtype"),
    [
        ("cuda", 1, False, torch.bfloat16),
        ("cpu", 10**8, True, torch.bfloat16),
        ("cpu", 10**8 - 1, True, torch.float32),
        ("cpu", 10**9, False, torch.float32),
    ],
)
def test_auto_is_bfloat16_where_the_device_multiplies_it_faster(monkeypatch, device, num_weights, amx, dtype):
    """CUDA does for every model; a CPU with AMX for models whose time is mostly that of products."""
    monkeypatch.setattr("nat.backend.model_loader.has_fast_bfloat16", lambda: amx)
    assert fastest_dtype(torch.device(device), num_weights) is dtype


def damaged_tensor(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def empty_vocabulary(folder):
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text())
    told["model"] |= {"vocab": {}, "merges": []}
    path.write_text(json.dumps(told))


DAMAGES = {
    "cut short": (lambda f: os.truncate(f / "model.safetensors", 1000), "cannot be loaded: SafetensorError"),
    "a tensor missing": (
        lambda f: damaged_tensor(f, lambda tensors: tensors.pop("model.norm.weight")),
        "lack 1 tensors: model.norm.weight",
    ),
    "not a number": (
        lambda f: damaged_tensor(f, lambda tensors: tensors["model.norm.weight"].fill_(torch.nan)),
        "1 tensors of the weights in .* hold NaN or infinity, the first is model.norm.weight",
    ),
    "other shapes": (
        lambda f: damaged_tensor(f, lambda t: t.update({"model.norm.weight": torch.ones(3)})),
        r"1 tensors .* have other shapes than config.json .* model.norm.weight: \[3\] in the file, \[32\] by",
    ),
    "no vocabulary": (lambda f: (f / "tokenizer.json").unlink(), r"has no tokenizer\.json"),
    "an empty vocabulary": (empty_vocabulary, "without a vocabulary: it has special tokens only"),
    "half a tokenizer": (lambda f: os.truncate(f / "tokenizer.json", 100), "the tokenizer in .* cannot be read"),
}


@pytest.mark.parametrize(("damage", "text"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_refused(tiny_dir, tmp_path, damage, text):
    """The error names the missing or invalid weights; none are initialised at random, no other model is suggested."""
    folder = shutil.copytree(tiny_dir("qwen2"), tmp_path / "model")
    damage(folder)
    with pytest.raises(ModelNotSupported, match=text) as error:
        load_model(folder, device="cpu")
    assert "plain causal attention" not in str(error.value)


def test_a_folder_without_a_model_is_named(tmp_path):
    """The error says what a checkpoint directory contains."""
    with pytest.raises(ModelNotSupported, match=r"no config\.json"):
        load_model(tmp_path)


def test_a_model_without_a_number_of_positions_needs_a_length(tmp_path):
    """BLOOM has no positions: a length is what the user says; its attention cannot be replaced, so rows are alone."""
    path = save(BloomConfig(vocab_size=300, hidden_size=32, n_layer=1, n_head=2), tmp_path / "bloom")
    with pytest.raises(ModelNotSupported, match="max_position_embeddings") as refusal:
        load_model(path, device="cpu")
    assert "set max_seq_length" in refusal.value.hint
    loaded = load_model(path, device="cpu", max_seq_length=70)
    assert loaded.max_seq_length == 70
    assert loaded.plain.why == "BloomForCausalLM does not let its attention be replaced"


@pytest.mark.parametrize(
    "wrong",
    [{"hidden_size": -1}, {"vocab_size": "many"}, {"num_attention_heads": 0}, {"model_type": []}, {"dtype": "nope"}],
    ids=str,
)
def test_a_configuration_that_lies_is_an_error_with_a_remedy(tiny_dir, tmp_path, wrong):
    """The library fails in its own ways on such values, for example in a division by zero."""
    folder = shutil.copytree(tiny_dir("qwen2"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | wrong))
    with pytest.raises(ModelNotSupported, match=r"\n.*copy"):
        load_model(folder)


def test_code_in_a_folder_never_runs_and_nobody_is_asked(tiny_dir, tmp_path, monkeypatch):
    """By default, transformers asks at the terminal whether to run it."""
    monkeypatch.setattr("builtins.input", lambda _: "y")
    folder = shutil.copytree(tiny_dir("qwen2"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    code = {"auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}, "model_type": "own"}
    (folder / "config.json").write_text(json.dumps(config | code))
    (folder / "own.py").write_text("raise SystemExit('the code has run')")
    with pytest.raises(ModelNotSupported, match="custom code"):
        load_model(folder)


HOSTILE = {
    "weights of another folder": (
        lambda f: index_of(f, "../outside.safetensors"),
        r"cannot be loaded: ValueError: model.safetensors.index.json names '../outside.safetensors'",
    ),
    "a manifest with files of another folder": (
        lambda f: (f / "manifest.json").write_text(
            json.dumps({"kind": "export", "files": {"../x.safetensors": {"bytes": 1, "sha256": "0" * 64}}})
        ),
        r"is damaged: manifest.json names '../x.safetensors'",
    ),
}


def index_of(folder, name):
    whole = folder / "model.safetensors"
    names = list(load_file(whole))
    whole.rename((folder / name).resolve())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, name)})
    )


@pytest.mark.parametrize(("change", "text"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_model_folder_is_refused(tiny_dir, tmp_path, change, text):
    """It is refused before anything of it is used."""
    folder = shutil.copytree(tiny_dir("qwen2"), tmp_path / "model")
    change(folder)
    with pytest.raises((ModelNotSupported, CheckpointDamaged), match=text):
        load_model(folder, device="cpu")


def test_weights_outside_safetensors_are_refused(tmp_path, tiny_dir):
    """A `pytorch_model.bin` is a pickle; the error says how the model is saved again."""
    for file in tiny_dir("qwen2").iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelNotSupported, match="no weights in safetensors") as refusal:
        load_model(tmp_path, device="cpu")
    assert "save_pretrained" in refusal.value.hint
