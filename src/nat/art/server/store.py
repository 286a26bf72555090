"""Where a model's files are: `<root>/<project>/models/<name>/`, as ART lays them out.

`checkpoints/0000` is the untrained adapter, `0001` the one after the first training call, and so on; nothing goes
unless a client asks for it.
"""

from dataclasses import dataclass
from pathlib import Path

from nat.art.server.names import ModelKey
from nat.backend.training.checkpoints import Checkpoint, Checkpoints, Layout

LAYOUT = Layout(prefix="", digits=4, tokenizer=True)
"""How ART's own server names checkpoints, and that each of them loads without another folder's tokenizer."""


@dataclass(frozen=True)
class Store:
    """The folders of all models."""

    root: Path

    def folder(self, key: ModelKey) -> Path:
        return self.root / key.project / "models" / key.name

    def saved(self, name: str | None = None) -> dict[ModelKey, Checkpoint]:
        """The newest whole checkpoint of each model, of this name or of all; those that were saved last at the end."""
        found = (path for path in self.root.glob("*/models/*/checkpoints") if name in {None, path.parent.name})
        folders = [path for path in found if path.is_dir()]
        ordered = sorted(folders, key=lambda path: path.stat().st_mtime_ns)
        keys = [ModelKey(path.parents[2].name, path.parent.name) for path in ordered]
        newest = {key: self.checkpoints(key).newest() for key in keys}
        return {key: found for key, found in newest.items() if found is not None}

    def checkpoints(self, key: ModelKey) -> Checkpoints:
        return Checkpoints(self.folder(key) / "checkpoints", keep_last=None, layout=LAYOUT)
