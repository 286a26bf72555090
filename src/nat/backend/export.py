"""Export the model as Hugging Face directories, which transformers and peft load, or as a GGUF file.

`python -m nat.backend.export CHECKPOINT TARGET FORMAT` exports a checkpoint without a server.
"""

import copy
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import TypeAdapter
from transformers import PreTrainedModel

from nat.backend.checkpoint_folder import ADAPTER_WEIGHTS, OF_TRAINING, verify, write_manifest
from nat.backend.model import LoadedModel
from nat.backend.model_loader import load_model, load_weights
from nat.errors import BackendError, ExportRefused, NatError
from nat.files import UNFINISHED, replacing_folder
from nat.wire.extras import install_hint, missing_packages
from nat.wire.model_folder import ADAPTER_CONFIG, REMOTE_WEIGHTS, ExportFormat, is_export, is_model

ADAPTER = "adapter"
"""Folder of the LoRA adapter inside an exported model."""


def export_model(loaded: LoadedModel, target: Path) -> Path | None:
    """Write model and tokenizer to `target`; with LoRA merged, and the adapter beside it, whose path is returned."""
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
    """Lend an empty folder that becomes the export `target`; only an earlier export is replaced."""
    try:
        with replacing_folder(target, may_replace=is_export) as folder:
            yield folder
            write_manifest(folder, "export")
    except (FileExistsError, NotADirectoryError) as error:
        raise ExportRefused(
            f"a model cannot be written to {target}: {error}",
            hint="choose another name, or move the existing folder away; only an earlier export is replaced",
        ) from error


def write_model(loaded: LoadedModel, folder: Path) -> None:
    """Write weights, configuration and tokenizer."""
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.hf.save_pretrained(folder)


def write_trained(loaded: LoadedModel, folder: Path) -> None:
    """Write what is trained: the adapter alone, or model and tokenizer."""
    if loaded.peft is None:
        write_model(loaded, folder)
    else:
        write_adapter(loaded, folder)


def write_adapter(loaded: LoadedModel, folder: Path) -> None:
    """Write the adapter in peft's format, without its key."""
    assert loaded.peft is not None, "without LoRA there is no adapter"
    # Embeddings are never trained; by default, peft would ask the Hub whether they were.
    loaded.peft.save_pretrained(str(folder), selected_adapters=[loaded.adapter], save_embedding_layers=False)
    own = folder / loaded.adapter  # peft's folder for an adapter that is not called "default"
    if own.is_dir():
        for path in own.iterdir():
            path.replace(folder / path.name)
        own.rmdir()


def merged(loaded: LoadedModel) -> PreTrainedModel:
    """Merge a copy on the CPU in fp32, then cast to the model's dtype; the served weights stay unchanged.

    Of a base of four bits, it is the base with all its bits that gets the adapter.
    """
    assert loaded.peft is not None, "only an adapter can be merged"
    if loaded.in_four_bits:
        with tempfile.TemporaryDirectory() as folder:
            write_adapter(loaded, Path(folder))
            return load_weights(Path(folder), loaded.dtype)
    wrapped = copy.deepcopy(loaded.peft).cpu().float()
    model = wrapped.merge_and_unload(adapter_names=[loaded.adapter])
    assert isinstance(model, PreTrainedModel), "our adapters wrap models of transformers"
    model.to(dtype=loaded.dtype)  # type: ignore[call-arg]  # transformers hides torch's signature
    return model


def export_checkpoint(checkpoint: Path, target: Path, form: ExportFormat = "hf") -> None:
    """Export a checkpoint without the files of training; an adapter is merged, and copied beside it.

    With the format `peft`, only the adapter is written; with `gguf`, one file of the whole model.

    Raises:
        BackendError: the format is `peft` without an adapter, or `gguf` without the package of this name; or the
            weights are on a Tinker server alone.
        CheckpointDamaged: a file of the checkpoint is not as it was written.
        ExportRefused: the target exists and is not an export; or GGUF files of this kind of model are not written.
        ModelNotSupported: the base model of an adapter cannot be loaded.

    """
    if form == "gguf":
        _export_gguf(checkpoint, target)
        return
    with export_folder(target) as folder:
        state = verify(checkpoint, optimizer=False)
        if not is_model(checkpoint):
            raise BackendError(
                f"{checkpoint} has no weights: they are on the Tinker server that {REMOTE_WEIGHTS} in it names, which "
                "gave no archive of them",
                hint="sample from them there, with this folder as `model` of a `tinker` LLM",
            )
        if form == "peft" and not state.lora:
            raise BackendError(
                f"{checkpoint} has all weights and no LoRA adapter, which the format peft would write",
                hint="use the format hf; to train an adapter, set `lora` of the LLM",
            )
        if form == "peft":
            _copy_adapter(checkpoint, folder)
        elif state.lora:
            write_model(load_model(checkpoint, verified=True), folder)
            (folder / ADAPTER).mkdir()
            _copy_adapter(checkpoint, folder / ADAPTER)
        else:
            for path in checkpoint.rglob("*"):
                target = folder / path.relative_to(checkpoint)
                if path.is_dir():
                    target.mkdir()
                elif path.name not in OF_TRAINING:
                    shutil.copyfile(path, target)


def _export_gguf(checkpoint: Path, target: Path) -> None:
    if missing_packages(["gguf"]):
        raise BackendError("the format gguf needs the package gguf, which is not installed", hint=install_hint("local"))
    from nat.backend.gguf_writing import write_gguf

    if target.exists() or target.is_symlink():  # a GGUF file does not tell whether it is an export
        raise ExportRefused(f"{target} exists already, so it stays", hint="choose another name, or move it away")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=UNFINISHED) as place:
        export_checkpoint(checkpoint, Path(place) / "model")
        write_gguf(Path(place) / "model", target)


def _copy_adapter(checkpoint: Path, folder: Path) -> None:
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        shutil.copyfile(checkpoint / name, folder / name)


def main(arguments: list[str]) -> int:
    """Export the checkpoint; print an error as text, and return the exit code."""
    try:
        checkpoint, target, form = arguments
        export_checkpoint(Path(checkpoint), Path(target), TypeAdapter(ExportFormat).validate_python(form))
    except NatError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201 - the last word of a command line
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
