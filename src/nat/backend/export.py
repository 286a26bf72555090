"""Write the model as Hugging Face directories, from which transformers and peft load it without us."""

import copy
from pathlib import Path

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from nat.backend.atomic import whole_folder
from nat.backend.model import LoadedModel

ADAPTER = "adapter"
"""Folder of the LoRA adapter inside an exported model."""


def export_model(loaded: LoadedModel, target: Path) -> Path | None:
    """Write model and tokenizer to `target`; with LoRA merged, and the adapter beside it, whose path is given back."""
    with whole_folder(target) as folder:
        if loaded.peft is None:
            write_model(loaded, folder)
        else:
            merged(loaded.peft, loaded.dtype).save_pretrained(folder)
            loaded.tokenizer.hf.save_pretrained(folder)
            write_adapter(loaded.peft, folder / ADAPTER)
    return None if loaded.peft is None else target / ADAPTER


def write_model(loaded: LoadedModel, folder: Path) -> None:
    """Write weights, configuration and tokenizer."""
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.hf.save_pretrained(folder)


def write_adapter(peft: PeftModel, folder: Path) -> None:
    """Write what was trained beside the base model, in peft's format."""
    peft.save_pretrained(str(folder))


def merged(peft: PeftModel, dtype: torch.dtype) -> PreTrainedModel:
    """Merge a copy on the CPU in fp32, then go to `dtype`; the served weights are not touched."""
    model = copy.deepcopy(peft).cpu().float().merge_and_unload()
    assert isinstance(model, PreTrainedModel), "an adapter of ours sits in a model of transformers"
    model.to(dtype=dtype)  # type: ignore[call-arg]  # transformers hides torch's signature
    return model
