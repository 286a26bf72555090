"""Adapters are exported for peft, under the name of their base model."""

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from peft import AutoPeftModelForCausalLM, PeftModel
from transformers import AutoModelForCausalLM

from fakes.damage import flip_a_bit
from fakes.tiny_model import make_tiny_model
from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.export import export_checkpoint
from nat.backend.gguf_reading import convert
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.errors import CheckpointDamaged, ExportRefused, ModelNotSupported
from nat.wire.training import TrainingConfig

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKENS = [5, 6, 7, 8]


@pytest.fixture
def base(tmp_path, monkeypatch) -> Path:
    """A model in the cache of the Hub, where its name and commit are known by its path."""
    torch.set_num_threads(1)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return make_tiny_model(tmp_path / "cache" / "models--owner--tiny" / "snapshots" / COMMIT)


def trained(path, lora):
    loaded = load_model(path, device="cpu", lora=lora)
    learner = Learner(loaded, Reference(loaded, lambda: load_model(path, device="cpu").model))
    learner.update(random_groups(loaded), resolve(TrainingConfig(learning_rate=1e-2, max_logprob_difference=100)))
    return loaded, learner


@pytest.fixture
def checkpoint(tmp_path, base) -> tuple[Path, torch.Tensor]:
    """A trained adapter, and the logits that it was served with."""
    loaded, learner = trained(base, LoraSettings(rank=4))
    with torch.no_grad():
        logits = packed_logits(loaded.model, PackedRows.of([TOKENS]))
    return Checkpoints(tmp_path / "checkpoints", keep_last=2).save(loaded, learner, None), logits


def adapter_config(folder: Path) -> dict:
    return json.loads((folder / "adapter_config.json").read_text())


def test_an_adapter_names_its_base_model_on_the_hub(checkpoint, tmp_path):
    """Its name and commit, in checkpoint and export: a path of this machine's cache would mean nothing elsewhere."""
    folder, _ = checkpoint
    export_checkpoint(folder, tmp_path / "peft", "peft")
    export_checkpoint(folder, tmp_path / "hf")
    for each in (folder, tmp_path / "peft", tmp_path / "hf" / "adapter"):
        found = adapter_config(each)
        assert (found["base_model_name_or_path"], found["revision"]) == ("owner/tiny", COMMIT)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft calls transformers
def test_the_exports_load_without_our_code(checkpoint, base, tmp_path):
    """Transformers loads the merged model, peft the adapter by itself and on a base of the user's; all agree."""
    folder, expected = checkpoint
    export_checkpoint(folder, tmp_path / "hf")
    export_checkpoint(folder, tmp_path / "peft", "peft")
    assert sorted(path.name for path in (tmp_path / "peft").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "manifest.json",
    ]
    models = [
        AutoModelForCausalLM.from_pretrained(tmp_path / "hf"),
        AutoPeftModelForCausalLM.from_pretrained(tmp_path / "peft"),
        PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(tmp_path / "peft")),
    ]
    with torch.no_grad():
        for model in models:
            torch.testing.assert_close(model(torch.tensor([TOKENS])).logits[0], expected, atol=1e-4, rtol=1e-4)


def test_an_adapter_is_merged_into_a_gguf_file(checkpoint, tmp_path):
    """The file computes what was served; one that exists is never replaced, as it may be anybody's."""
    folder, expected = checkpoint
    target = tmp_path / "deep" / "model.gguf"
    export_checkpoint(folder, target, "gguf")
    assert [path.name for path in target.parent.iterdir()] == ["model.gguf"]
    convert(target, tmp_path / "back")
    with torch.no_grad():
        found = AutoModelForCausalLM.from_pretrained(tmp_path / "back")(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    before = target.read_bytes()
    with pytest.raises(ExportRefused, match="exists already, so it stays"):
        export_checkpoint(folder, target, "gguf")
    assert target.read_bytes() == before


def test_an_export_needs_the_weights_alone(checkpoint, tmp_path):
    """A user may have deleted the optimizer's state, or its disk may have damaged it; damaged weights are refused."""
    folder, _ = checkpoint
    for damage in (flip_a_bit, Path.unlink):
        damage(folder / "optimizer.safetensors")
        export_checkpoint(folder, tmp_path / "peft", "peft")
    flip_a_bit(folder / "adapter_model.safetensors")
    with pytest.raises(CheckpointDamaged):
        export_checkpoint(folder, tmp_path / "peft", "peft")


def test_a_checkpoint_finds_its_base_in_the_cache(checkpoint):
    """Without a download; so it is a model on every machine whose cache has the base."""
    folder, expected = checkpoint
    again = load_model(folder, device="cpu")
    with torch.no_grad():
        torch.testing.assert_close(packed_logits(again.model, PackedRows.of([TOKENS])), expected)


def test_a_base_that_is_not_in_the_cache_says_how_to_get_it(checkpoint, base, tmp_path):
    """The error has the command, with the commit."""
    folder, _ = checkpoint
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelNotSupported, match=rf"owner/tiny.*\n.*hf download owner/tiny --revision {COMMIT}"):
        load_model(folder, device="cpu")
