"""Folders of models: how to recognise one, and the manifest of those that the backend writes."""

import json
import math
import re
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, ValidationError

from nat.wire.training import WireModel

MODEL_CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
"""Names the files of weights that are in several."""
MANIFEST = "manifest.json"
"""The kind of folder and the checksums of its files; written last."""
STATE = "state.json"
"""A checkpoint's state besides tensors."""


ExportFormat = Literal["hf", "peft"]
"""A whole model as transformers loads it, or a LoRA adapter alone as peft does."""

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


def is_adapter(folder: Path) -> bool:
    """True if the folder has a LoRA adapter, which names its base model, and no whole model."""
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / MODEL_CONFIG).is_file()


def base_folder(folder: Path) -> Path:
    """The folder itself; for an adapter that of its base model, which may be a name on the Hub instead."""
    if not is_adapter(folder):
        return folder
    return Path(json.loads((folder / ADAPTER_CONFIG).read_text())["base_model_name_or_path"])


def num_parameters(folder: Path) -> int | None:
    """Count a model's weights by the headers of its safetensors; an adapter's count is that of its base model.

    None if the weights are in other files.
    """
    folder = base_folder(folder)
    index, whole = folder / WEIGHTS_INDEX, folder / WEIGHTS
    if index.is_file():
        return sum(map(_num_values, indexed_files(index)))
    return _num_values(whole) if whole.is_file() else None


def indexed_files(index: Path) -> set[Path]:
    """The files that an index of weights names.

    Raises:
        ValueError: one is not in the index's folder, so another file of this machine would become weights.

    """
    folder = index.parent
    places = [folder.resolve()]
    if hub_model(folder) is not None:
        places.append((folder.parent.parent / "blobs").resolve())  # the Hub's cache links to these
    files = set()
    for name in set(json.loads(index.read_text())["weight_map"].values()):
        path = folder / name
        if Path(name).is_absolute() or not any(path.resolve().is_relative_to(place) for place in places):
            raise ValueError(f"{index.name} names {name!r}, which is not in its folder")
        files.add(path)
    return files


def _num_values(path: Path) -> int:
    """Values of all tensors in a safetensors file, which begins with the length of a JSON header and the header."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise ValueError(f"{path} announces a header of {length} bytes, more than the file has")
        header = json.loads(file.read(length))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


class FileSum(WireModel):
    """Size and checksum of a file."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(WireModel):
    """The folder's files by their path inside it, without the manifest."""

    kind: Literal["checkpoint", "export"]
    files: dict[str, FileSum]


def read_manifest(folder: Path) -> Manifest | None:
    """Read the folder's manifest, None if it has none.

    Raises:
        ValueError: the manifest cannot be read.

    """
    path = folder / MANIFEST
    if not path.exists():
        return None
    if not path.is_file():  # reading a FIFO would not end
        raise ValueError(f"{MANIFEST} is no file")
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ValueError(f"{MANIFEST} cannot be read") from error


def is_export(path: Path) -> bool:
    """True for a folder whose manifest says that it is an export; False for a link to one."""
    try:
        manifest = None if path.is_symlink() else read_manifest(path)
    except ValueError:
        return False
    return manifest is not None and manifest.kind == "export"
