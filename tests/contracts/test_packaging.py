"""An installed `nat` shares its name with packages of others."""

import os
import runpy
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "nat"
NAMESPACES = ("nat", "nat.plugins")


@pytest.mark.parametrize("name", NAMESPACES)
def test_namespace_packages_have_no_init(name):
    """`nat` and `nat.plugins` have no `__init__.py`, which would hide plug-in wheels of others."""
    assert not SOURCE.parent.joinpath(*name.split("."), "__init__.py").exists()


def test_regular_packages_have_one():
    """Every other package has an `__init__.py`, because it is ours alone. Templates are files, not packages."""
    modules = [file for file in SOURCE.rglob("*.py") if "templates" not in file.parts]
    folders = {file.parent for file in modules} - {SOURCE, SOURCE / "plugins"}
    assert [
        str(folder.relative_to(SOURCE)) for folder in sorted(folders) if not (folder / "__init__.py").is_file()
    ] == []


def test_types_are_shipped():
    """`py.typed` is installed, so type checkers use the annotations."""
    assert resources.files("nat").joinpath("py.typed").is_file()


def test_a_plug_in_package_of_others_merges(tmp_path):
    """A folder `nat/plugins/theirs` of another distribution can be imported beside our plug-ins."""
    theirs = tmp_path / "nat" / "plugins" / "theirs"
    theirs.mkdir(parents=True)
    (theirs / "__init__.py").write_text("NAME = 'theirs'\n")
    code = "import nat.plugins.theirs, nat.plugins.llms, nat.errors; print(nat.plugins.theirs.NAME)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(  # noqa: S603 - our own interpreter and text
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "theirs\n", done.stderr


@pytest.mark.parametrize("url", [None, "https://example.org/team/nat"])
def test_the_links_of_a_release_are_those_of_its_repository(url, monkeypatch):
    """Only the workflow that publishes knows where the repository is; relative links of an index lead nowhere."""
    monkeypatch.delenv("REPOSITORY_URL", raising=False)
    if url is not None:
        monkeypatch.setenv("REPOSITORY_URL", url)
    metadata = {"version": "1.2.3"}
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["CustomMetadataHook"]
    hook(str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]
    assert ("](docs/" in text) == (url is None)
    assert metadata.get("urls", {}).get("Repository") == url
    if url is not None:
        assert f"]({url}/blob/v1.2.3/docs/" in text
        assert f"]({url}/raw/v1.2.3/docs/images/" in text


def test_the_citation_has_the_version():
    """A release is cited by its own version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
