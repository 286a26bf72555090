"""`make` and CI install pinned, tested versions."""

import re

import pytest
from conformance.environments import PROJECT, REPOSITORY, check, link_packages, name_of, names, requirements_in


def test_every_requirement_of_make_install_is_pinned():
    """`constraints.txt` pins each package of the extras that are installed into .venv."""
    asked = [
        PROJECT["dependencies"],
        *(PROJECT["optional-dependencies"][extra] for extra in ("local", "parquet", "telemetry", "tinker", "dev")),
    ]
    pinned = requirements_in(REPOSITORY / "constraints.txt")
    assert {name_of(text) for texts in asked for text in texts} <= set(pinned)
    assert all(str(pin.specifier).startswith("==") for pin in pinned.values())


def test_ci_installs_files_with_known_hashes():
    """`.ci/hashes.txt` has each pin of `constraints.txt` with a SHA-256, and CI installs from it."""
    lines = [line for line in (REPOSITORY / ".ci" / "hashes.txt").read_text().splitlines() if not line.startswith("#")]
    hashed = dict(re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line).groups() for line in lines)
    pins = requirements_in(REPOSITORY / "constraints.txt")
    known = {name_of(name): f"=={version}" for name, version in hashed.items()}
    assert known == {name: str(pin.specifier) for name, pin in pins.items()}
    assert "make hashed" in (REPOSITORY / ".ci" / "run").read_text()


@pytest.mark.parametrize("name", names())
def test_each_environment_has_a_matching_lock(name):
    """Each lock pins all requirements of its file and of our package to allowed versions."""
    assert check(name) == []


def test_only_packages_of_the_locked_version_are_linked(tmp_path):
    """An environment gets from another one what its own lock pins, with bytecode, and no scripts of its folder."""
    source, target, lock = tmp_path / "source", tmp_path / "target", tmp_path / "wanted.lock"
    for name in ("same", "older", "unwanted"):
        files = {
            f"{name}/part.py": "x = 1",
            f"{name}/__pycache__/part.cpython-311.pyc": "",
            f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{name}-1.0.dist-info/RECORD": f"{name}/part.py,,\n{name}-1.0.dist-info/METADATA,,\n../bin/{name},,\n",
            f"../bin/{name}": "",
        }
        for path, text in files.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_text(text)
    lock.write_text("same==1.0\nolder==2.0\n")
    link_packages(source, target, requirements_in(lock))
    linked = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert linked == {"same/part.py", "same/__pycache__/part.cpython-311.pyc", "same-1.0.dist-info/METADATA"}
