"""Names of models, and the folders where their files are: `<root>/<project>/models/<name>/`, as ART lays them out.

In there, `checkpoints/0000` is the untrained adapter, `0001` the one after the first training call, and so on. A
checkpoint stays until a client deletes it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from nat.art.wire import ArtModel
from nat.backend.training.checkpoints import Checkpoint, Checkpoints, Layout
from nat.errors import NameRefused
from nat.wire.training import FILE_NAME

LAYOUT = Layout(prefix="", digits=4, tokenizer=True)
"""ART's own names of checkpoints; each has a tokenizer, so that it loads by itself."""
_FOLDER = re.compile(FILE_NAME)
_ARTIFACT = re.compile(r"wandb-artifact:///[^/]+/([^/]+)/([^/:]+)(?::(?:step([0-9]{1,9})|latest))?")
_STEP = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class ModelKey:
    """Identifies a model: two projects may use the same name."""

    project: str
    name: str

    def __str__(self) -> str:
        return f"{self.project}/{self.name}"


@dataclass(frozen=True)
class ModelReference:
    """A model as a request names it; without a step its newest weights, without a project the last one prepared."""

    name: str
    project: str | None = None
    step: int | None = None


def key_of(model: ArtModel) -> ModelKey:
    """Check the names with which a client registers.

    Raises:
        NameRefused: one of them cannot name a folder.

    """
    for what, text in (("project", model.project), ("name", model.name)):
        if _FOLDER.fullmatch(text) is None:
            raise NameRefused(
                f"{what} {text!r} cannot name a folder: use letters, digits, '.', '_' and '-', "
                "at most 128, the first one a letter or a digit"
            )
    return ModelKey(model.project, model.name)


def parse(text: str) -> ModelReference:
    """Read `name`, `name@3`, `name@latest`, or an artifact's name of ART's serverless client."""
    if artifact := _ARTIFACT.fullmatch(text):
        project, name, step = artifact.groups()
        return ModelReference(name, project, None if step is None else int(step))
    name, at, version = text.rpartition("@")
    if at and version == "latest":
        return ModelReference(name)
    if at and _STEP.fullmatch(version):
        return ModelReference(name, step=int(version))
    return ModelReference(text)


def version(name: str, step: int) -> str:
    """Name the weights after `step` training calls."""
    return f"{name}@{step}"


@dataclass(frozen=True)
class Store:
    """The folders of all models."""

    root: Path

    def folder(self, key: ModelKey) -> Path:
        return self.root / key.project / "models" / key.name

    def saved(self, name: str | None = None) -> dict[ModelKey, Checkpoint]:
        """The newest whole checkpoint of each model, or of each with this name; the last one saved comes last."""
        found = (path for path in self.root.glob("*/models/*/checkpoints") if name in {None, path.parent.name})
        folders = [path for path in found if path.is_dir()]
        ordered = sorted(folders, key=lambda path: path.stat().st_mtime_ns)
        keys = [ModelKey(path.parents[2].name, path.parent.name) for path in ordered]
        newest = {key: self.checkpoints(key).newest() for key in keys}
        return {key: found for key, found in newest.items() if found is not None}

    def checkpoints(self, key: ModelKey) -> Checkpoints:
        return Checkpoints(self.folder(key) / "checkpoints", keep_last=None, layout=LAYOUT)
