"""After `pip install` in a plain environment, `nat` trains on every supported Python."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conformance.environments import PROJECT, REPOSITORY, interpreter, name_of, pip
from conformance.installs.plain import Environment, cpu_torch, lowest, made

EXAMPLE = REPOSITORY / "examples" / "tic_tac_toe"
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
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that is built from it, as a release has them."""
    folder = tmp_path_factory.mktemp("dist")
    with environment("build", "3.11") as builder:
        builder.pip("install", "--requirement", REPOSITORY / ".ci" / "release.txt")
        built = builder.python("-m", "build", "--outdir", folder, REPOSITORY)
        assert built.returncode == 0, built.stdout + built.stderr
        checked = builder.python("-m", "twine", "check", "--strict", *folder.iterdir())
        assert checked.returncode == 0, checked.stdout + checked.stderr
    return folder


@pytest.fixture
def wheel(dist: Path) -> Path:
    """The package as a wheel."""
    (found,) = dist.glob("*.whl")
    return found


@contextmanager
def environment(name: str, version: str) -> Iterator[Environment]:
    """A plain environment, which is deleted at the end: with CUDA it has several gigabytes."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    opened = made(name, python)
    try:
        yield opened
    finally:
        shutil.rmtree(opened.folder)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_without_extras_the_harness_works(wheel: Path, version: str) -> None:
    """`nat` starts, lists its components, and names the extra that a `local` LLM needs."""
    with environment(f"plain-{version}", version) as plain:
        plain.pip("install", wheel)
        plain.pip("install", "--no-deps", EXAMPLE)
        check_the_harness_alone(plain)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_source_archive_installs_with_the_pins(dist: Path, version: str) -> None:
    """It brings the versions that were tested, `constraints.txt`, and they are to be had on each Python."""
    (archive,) = dist.glob("*.tar.gz")
    with environment(f"archive-{version}", version) as plain:
        with tarfile.open(archive) as files:
            files.extractall(plain.folder / "source", filter="data")
        (pins,) = plain.folder.glob("source/*/constraints.txt")
        plain.pip("install", "--constraint", pins, archive)
        assert plain.nat("--version").stdout.split()[-1] == PROJECT["version"]


def test_the_wheel_trains_with_torch_for_the_cpu(wheel: Path) -> None:
    """The CPU build of torch is chosen first, as the docs say for machines without a GPU."""
    with environment("cpu", "3.11") as plain:
        plain.pip("install", *cpu_torch(), f"{wheel}[local]", EXAMPLE)
        check_it_trains(plain)
        check_a_new_project_trains(plain)


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_pip_resolves_the_extra(version: str, tmp_path: Path) -> None:
    """Pip resolves all requirements to wheels on each Python; only the large tests install them."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    report = tmp_path / "report.json"
    only_choose = ("--dry-run", "--quiet", "--ignore-installed", "--only-binary", ":all:", "--report", str(report))
    pip(python, "install", *only_choose, ".[local]")
    chosen = {name_of(each["metadata"]["name"]) for each in json.loads(report.read_text())["install"]}
    assert {name_of(each) for each in PROJECT["optional-dependencies"]["local"]} <= chosen


@pytest.mark.large
def test_the_source_trains_with_pips_own_choice() -> None:
    """`pip install '.[local]'` in a clone is enough to train."""
    with environment("source", "3.12") as plain:
        plain.pip("install", ".[local]", EXAMPLE)
        check_it_trains(plain)


@pytest.mark.large
def test_the_extra_can_be_added_later(wheel: Path) -> None:
    """The command of the error message works wherever the package is installed."""
    with environment("wheel", "3.13") as plain:
        plain.pip("install", wheel)
        plain.pip("install", "nat-finetuning-harness[local]", EXAMPLE)
        check_it_trains(plain)


@pytest.mark.large
def test_the_lowest_versions_train() -> None:
    """With every lower bound of pyproject.toml installed, modules import and a run succeeds."""
    with environment("lowest", "3.11") as plain:
        plain.pip("install", ".[local,parquet]", EXAMPLE, *lowest("local", "parquet"))
        imported = plain.python("-c", EVERY_MODULE)
        assert imported.returncode == 0, imported.stderr
        check_it_trains(plain)


def check_the_harness_alone(plain: Environment) -> None:
    """Check version, components, and the refusal to serve a model."""
    assert plain.nat("--version").stdout.split()[-1] == PROJECT["version"]
    components = json.loads(plain.nat("info", "components", "--json").stdout)
    assert any(component["type"] == "local_trainer_adapter" for component in components)
    refused = plain.nat("finetune", "--config_file", CONFIG)
    assert refused.returncode != 0
    assert "[local]" in refused.stderr
    assert "Traceback" not in refused.stderr
    without_torch = plain.nat("init", "demo", cwd=plain.folder)
    assert "torch" in without_torch.stderr
    assert "--no_model" in without_torch.stderr
    written = plain.nat("init", "demo", "--no_model", cwd=plain.folder)
    assert "[local]" in written.stdout, written.stderr
    assert (plain.folder / "demo" / "data" / "train.jsonl").is_file()


def check_a_new_project_trains(plain: Environment) -> None:
    """Make a project in an empty folder, with nothing of the repository, and train it for an epoch."""
    assert plain.nat("init", "fresh", cwd=plain.folder).returncode == 0
    project = plain.folder / "fresh"
    trained = plain.nat("finetune", "--config_file=config.yml", "-o", "finetuning.num_epochs", "1", cwd=project)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert json.loads((project / ".tmp/runs/latest/summary.json").read_text())["tokens_trained"] > 0
    assert plain.nat("docs", "start/first_run").stdout.startswith("# ")


def check_it_trains(plain: Environment) -> None:
    """Train two epochs of the first example and get an answer from the trained model."""
    folder = plain.folder / "runs"
    short = ["-o", "finetuning.num_epochs", "2", "-o", "finetuning.output_dir", str(folder)]
    trained = plain.nat("finetune", "--config_file", CONFIG, *short, "--json")
    assert trained.returncode == 0, trained.stdout + trained.stderr
    summary = json.loads((folder / "latest" / "summary.json").read_text())
    assert summary["tokens_trained"] > 0
    model = ["-o", "llms.player.model", str(folder / "latest" / "model")]
    answered = plain.nat("run", "--config_file", CONFIG, *model, "--input", "X")
    assert answered.returncode == 0, answered.stdout + answered.stderr
