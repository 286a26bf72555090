"""Write the model as Hugging Face directories, from which transformers and peft load it without us."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import PreTrainedModel

from nat.backend.manifest import write_manifest
from nat.backend.model import LoadedModel
from nat.errors import ExportRefused
from nat.files import whole_folder
from nat.wire.manifest import is_export

ADAPTER = "adapter"
"""Folder of the LoRA adapter inside an exported model."""


def export_model(loaded: LoadedModel, target: Path) -> Path | None:
    """Write model and tokenizer to `target`; with LoRA merged, and the adapter beside it, whose path is given back.

    Raises:
        ExportRefused: something that is not an export stands there.

    """
    with export_folder(target) as folder:
        if loaded.peft is None:
            write_model(loaded, folder)
        else:
            merged(loaded).save_pretrained(folder)
            loaded.tokenizer.hf.save_pretrained(folder)
            write_adapter(loaded, folder / ADAPTER)
    return None if loaded.peft is None else target / ADAPTER


@contextmanager
def export_folder(target: Path) -> Iterator[Path]:
    """Lend an empty folder that becomes the export `target`, in place of an older export only.

    Raises:
        ExportRefused: something that is not an export stands there.

    """
    try:
        with whole_folder(target, may_replace=is_export) as folder:
            yield folder
            write_manifest(folder, "export")
    except (FileExistsError, NotADirectoryError) as error:
        raise ExportRefused(
            f"a model cannot be written to {target}: {error}",
            hint="choose another name, or move away what stands there; only an earlier export is replaced",
        ) from error


def write_model(loaded: LoadedModel, folder: Path) -> None:
    """Write weights, configuration and tokenizer."""
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.hf.save_pretrained(folder)


def write_adapter(loaded: LoadedModel, folder: Path) -> None:
    """Write what was trained beside the base model, in peft's format and without its key."""
    assert loaded.peft is not None, "only an adapter can be written without its model"
    # Embeddings are never trained; left to itself, peft would ask the Hub whether they were.
    loaded.peft.save_pretrained(str(folder), selected_adapters=[loaded.adapter], save_embedding_layers=False)
    own = folder / loaded.adapter  # where peft puts an adapter that is not called "default"
    if own.is_dir():
        for path in own.iterdir():
            path.replace(folder / path.name)
        own.rmdir()


def merged(loaded: LoadedModel) -> PreTrainedModel:
    """Merge a copy on the CPU in fp32, then go to the model's dtype; the served weights are not touched."""
    assert loaded.peft is not None, "without an adapter there is nothing to merge"
    model = copy.deepcopy(loaded.peft).cpu().float().merge_and_unload(adapter_names=[loaded.adapter])
    assert isinstance(model, PreTrainedModel), "an adapter of ours sits in a model of transformers"
    model.to(dtype=loaded.dtype)  # type: ignore[call-arg]  # transformers hides torch's signature
    return model
