"""An installed `nat` shares its name with packages of others."""

import os
import re
import runpy
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from conformance.environments import PROJECT, check, name_of, names, requirements_in

from nat.project.new_project import FRAMEWORKS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "nat"
INSTALLED = ("local", "parquet", "telemetry", "tinker", "dev")
"""The extras of `make install`."""


def test_only_namespace_packages_have_no_init():
    """`nat` and `nat.plugins` have no `__init__.py`, which would hide plug-in wheels of others."""
    modules = [file for file in SOURCE.rglob("*.py") if "templates" not in file.parts]
    folders = {file.parent for file in modules}
    assert {folder for folder in folders if not (folder / "__init__.py").is_file()} == {SOURCE, SOURCE / "plugins"}


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
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
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
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_extras_that_messages_name_exist():
    """`nat init --framework` names the extra that its project needs."""
    named = {framework.extra for framework in FRAMEWORKS.values()} - {None}
    assert named <= set(PROJECT["optional-dependencies"])


def test_pins_agree_with_extras():
    """`constraints.txt` pins what is installed into .venv, `.ci/hashes.txt` has the same pins, and each lock fits."""
    extras = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *(text for extra in INSTALLED for text in extras[extra])]
    pins = {name: str(pin.specifier) for name, pin in requirements_in(ROOT / "constraints.txt").items()}
    assert {name_of(text) for text in asked} <= set(pins)
    hashed = re.findall(r"^(\S+)(==\S+) --hash=sha256:", (ROOT / ".ci" / "hashes.txt").read_text(), re.MULTILINE)
    assert {name_of(name): version for name, version in hashed} == pins
    assert {name: problems for name in names() if (problems := check(name))} == {}
