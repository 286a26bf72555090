"""Plug-ins that are installed as packages with entry points on the path."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a distribution of one module with entry points of `nat.algorithms`; removed after the test."""

    def installed(distribution: str, source: str, **points: str) -> None:
        site = tmp_path / distribution
        info = site / f"{distribution}-1.0.dist-info"
        info.mkdir(parents=True)
        module = distribution.replace("-", "_")
        (site / f"{module}.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = {module}:{target}" for name, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[nat.algorithms]", *lines, ""]))
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, module, raising=False)

    return installed
