"""What the metadata of a release cannot say in `pyproject.toml`: where the repository is, which a fork may change.

The workflow that publishes sets REPOSITORY_URL. Without it, the package has no links to a repository.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)]+\))")


class CustomMetadataHook(MetadataHookInterface):
    """Adds the links, and makes those of the README absolute, since an index shows it on a page of its own."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if url := os.environ.get("REPOSITORY_URL"):
            here = f"{url}/blob/v{metadata['version']}"
            metadata["urls"] = {
                "Repository": url,
                "Documentation": f"{here}/docs/index.md",
                "Changelog": f"{here}/CHANGELOG.md",
                "Issues": f"{url}/issues",
            }
            text = _RELATIVE_LINK.sub(rf"\1{here}/\2", text)
            text = text.replace(f"{here}/docs/images", f"{url}/raw/v{metadata['version']}/docs/images")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
