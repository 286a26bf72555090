"""`pip install` in a plain environment, as people do it, gives a `nat` that trains; on every Python that we name."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from environments import PROJECT, ROOT, Environment, cpu_torch, interpreter, lowest, made

EXAMPLE = ROOT / "examples" / "tic_tac_toe"
CONFIG = EXAMPLE / "configs" / "finetune.yml"
EVERY_MODULE = """
import importlib, pkgutil, nat
frameworks = {"adk", "agno", "autogen", "crewai", "langchain", "llama_index", "openai_agents", "pydantic_ai",
              "semantic_kernel", "smolagents", "strands"}
for module in pkgutil.walk_packages(nat.__path__, "nat."):
    if not frameworks.intersection(module.name.split(".")) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our package as it would be released."""
    folder = tmp_path_factory.mktemp("wheel")
    with environment("build", "3.11") as builder:
        builder.pip("wheel", "--no-deps", "--wheel-dir", folder, ".")
    (found,) = folder.glob("*.whl")
    return found


@contextmanager
def environment(name: str, version: str) -> Iterator[Environment]:
    """A plain environment, removed at the end: with CUDA's packages it has several gigabytes."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    opened = made(name, python)
    try:
        yield opened
    finally:
        shutil.rmtree(opened.folder)


@pytest.mark.parametrize(
    ("version", "package", "extra", "torch"),
    [
        ("3.11", "{wheel}", "{wheel}[local]", cpu_torch()),
        ("3.12", ".", ".[local]", []),
        ("3.13", "{wheel}", "nat-finetuning-harness[local]", []),  # as the error message says
    ],
    ids=["3.11-wheel-cpu", "3.12-source", "3.13-wheel"],
)
def test_a_plain_install_trains(wheel: Path, version: str, package: str, extra: str, torch: list[str]) -> None:
    """Without extras it is the harness, which says what a `local` LLM needs; with `[local]` it trains."""
    with environment(version, version) as plain:
        plain.pip("install", package.format(wheel=wheel))
        plain.pip("install", "--no-deps", EXAMPLE)
        check_the_harness_alone(plain)
        plain.pip("install", *torch, extra.format(wheel=wheel))
        check_it_trains(plain)


def test_the_lowest_versions_train() -> None:
    """The lower bounds in pyproject.toml are true: with all of them at once, modules import and a run ends well."""
    with environment("lowest", "3.11") as plain:
        plain.pip("install", ".[local,parquet]", EXAMPLE, *lowest("local", "parquet"))
        imported = plain.python("-c", EVERY_MODULE)
        assert imported.returncode == 0, imported.stderr
        check_it_trains(plain)


def check_the_harness_alone(plain: Environment) -> None:
    """`nat` starts, lists its components, and says which extra is missing."""
    assert plain.nat("--version").stdout.split()[-1] == PROJECT["version"]
    components = json.loads(plain.nat("info", "components", "--json").stdout)
    assert any(component["type"] == "local_trainer_adapter" for component in components)
    refused = plain.nat("finetune", "--config_file", CONFIG)
    assert refused.returncode != 0
    assert "[local]" in refused.stderr
    assert "Traceback" not in refused.stderr


def check_it_trains(plain: Environment) -> None:
    """Two epochs of the first example, and an answer of what came out."""
    folder = plain.folder / "runs"
    short = ["-o", "finetuning.num_epochs", "2", "-o", "finetuning.output_dir", str(folder)]
    trained = plain.nat("finetune", "--config_file", CONFIG, *short, "--json")
    assert trained.returncode == 0, trained.stdout + trained.stderr
    summary = json.loads((folder / "latest" / "summary.json").read_text())
    assert summary["tokens_trained"] > 0
    model = ["-o", "llms.player.model", str(folder / "latest" / "model")]
    answered = plain.nat("run", "--config_file", CONFIG, *model, "--input", "X")
    assert answered.returncode == 0, answered.stdout + answered.stderr
