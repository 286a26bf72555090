"""Folders of models: how to recognise one, and the manifest of those that the backend writes."""

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError
from pydantic_core import from_json

from nat.files import write_text
from nat.wire.training import WireModel

MODEL_CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
"""Names the files of weights that are in several."""
MANIFEST = "manifest.json"
"""The kind of folder and the checksums of its files; written last."""
STATE = "state.json"
"""A checkpoint's state besides tensors."""
OPTIMIZER = "optimizer.safetensors"
"""The optimizer's state, by which a run goes on from a checkpoint; twice the size of the weights that are trained."""
REMOTE_WEIGHTS = "tinker.json"
"""In a checkpoint or an export: where a Tinker server has its weights and optimizer."""


ExportFormat = Literal["hf", "peft", "gguf"]
"""A whole model as transformers loads it, a LoRA adapter alone as peft does, or a model in a file of llama.cpp."""

_CACHED = re.compile(r"models--(?P<name>.+)/snapshots/(?P<commit>[0-9a-f]{40})")
"""The end of a model's path in the Hugging Face Hub's cache; names on the Hub have no `--`."""


class HubModel(NamedTuple):
    """A model of the Hugging Face Hub."""

    name: str
    revision: str
    """Its commit."""


def hub_model(folder: Path) -> HubModel | None:
    """The model whose folder in the Hub's cache this is; None for any other folder."""
    found = _CACHED.fullmatch("/".join(folder.absolute().parts[-3:]))
    return None if found is None else HubModel(found["name"].replace("--", "/"), found["commit"])


def is_model(folder: Path) -> bool:
    """True if the folder has a model's or an adapter's configuration; the weights are not checked."""
    return (folder / MODEL_CONFIG).is_file() or is_adapter(folder)


def no_causal_model(folder: Path) -> str | None:
    """The class of a model that does not write one token after the other, by its configuration; None for others."""
    config = from_json((folder / MODEL_CONFIG).read_bytes()) if (folder / MODEL_CONFIG).is_file() else {}
    named = config.get("architectures") or ()
    writes = any(part in name for name in named for part in ("CausalLM", "LMHead", "ConditionalGeneration", "Decoder"))
    return str(named[0]) if named and (not writes or config.get("is_encoder_decoder")) else None


def has_chat_template(folder: Path) -> bool:
    """False if no file of the tokenizer has a template for messages; True if it may be with an adapter's base."""
    if any((folder / name).exists() for name in _TEMPLATES):
        return True
    config = folder / TOKENIZER_CONFIG
    if config.is_file():
        return bool(from_json(config.read_bytes()).get("chat_template"))
    return is_adapter(folder)


def is_adapter(folder: Path) -> bool:
    """True if the folder has a LoRA adapter, which names its base model, and no whole model."""
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / MODEL_CONFIG).is_file()


def base_folder(folder: Path) -> Path:
    """The folder itself; for an adapter that of its base model, which may be a name on the Hub instead."""
    if is_adapter(folder):
        return Path(from_json((folder / ADAPTER_CONFIG).read_bytes())["base_model_name_or_path"])
    return folder


def num_parameters(folder: Path) -> int | None:
    """Count weights by the headers of safetensors, for an adapter those of its base; None if they are elsewhere."""
    folder = base_folder(folder)
    index, whole = folder / WEIGHTS_INDEX, folder / WEIGHTS
    if index.is_file():
        files = indexed_files(index)
    elif whole.is_file():
        files = {whole}
    else:
        return None
    shapes = (entry["shape"] for file in files for entry in tensor_entries(file)[0].values())
    return sum(int(math.prod(shape)) for shape in shapes)


def indexed_files(index: Path) -> set[Path]:
    """The files that an index names; ValueError if another file of this machine, or none of weights, would be read."""
    names = {str(name) for name in from_json(index.read_bytes())["weight_map"].values()}
    _check_names(index, names, Path(index.name.removesuffix(".index.json")).suffix)
    return {index.parent / name for name in names}


def _check_names(listing: Path, names: Iterable[str], ending: str = "") -> None:
    folder = listing.parent
    places = [folder.resolve()]
    if hub_model(folder) is not None:
        places.append((folder.parent.parent / "blobs").resolve())  # the Hub's cache links to these
    for name in names:
        inside = not Path(name).is_absolute() and any(map((folder / name).resolve().is_relative_to, places))
        if not (inside and name.endswith(ending)):
            raise ValueError(f"{listing.name} names {name!r}; wanted is a file '*{ending}' of its folder")


def tensor_entries(path: Path) -> tuple[dict[str, Any], int]:
    """What a safetensors file says of each tensor, and where their bytes begin: after a JSON header and its length.

    Raises:
        ValueError: the file has no such header.

    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise ValueError(f"{path} announces a header of {length} bytes, more than the file has")
        header = from_json(file.read(length))
    return {name: entry for name, entry in header.items() if name != "__metadata__"}, 8 + length


class FileSum(WireModel):
    """Size and checksum of a file."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(WireModel):
    """The folder's files by their path inside it, without the manifest."""

    kind: Literal["checkpoint", "export"]
    files: dict[str, FileSum]


def read_manifest(folder: Path) -> Manifest | None:
    """Read the folder's manifest, None if it has none; ValueError if it cannot be read or names files of elsewhere."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ValueError(f"{MANIFEST} cannot be read") from error
    _check_names(path, manifest.files)
    return manifest


def is_export(path: Path) -> bool:
    """True for a folder whose manifest says that it is an export; False for a link to one."""
    try:
        manifest = None if path.is_symlink() else read_manifest(path)
    except ValueError:
        return False
    return manifest is not None and manifest.kind == "export"


def forget_optimizer(checkpoint: Path) -> None:
    """Delete the optimizer's state of a checkpoint, which stays a whole model, also if this is killed between."""
    if not (state := checkpoint / OPTIMIZER).is_file():
        return
    with suppress(ValueError):  # a damaged one stays damaged
        manifest = read_manifest(checkpoint)
        if manifest is not None and manifest.files.pop(OPTIMIZER, None) is not None:
            write_text(checkpoint / MANIFEST, manifest.model_dump_json(indent=1))
    state.unlink()
