"""A run goes on only as the run that it was."""

import re
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import create_model

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.errors import ConfigError
from nat.finetuning.identity import check_identity, files_digest, identity_of
from nat.finetuning.plan import resolve
from nat.runs.journal import Journal

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MODEL = Path(__file__).parents[2] / "recorded" / "model"


class Begun:
    """A run's journal, as it is when the run has begun, and its project, which may change."""

    def __init__(self, project: FinetuningProject, journal: Journal) -> None:
        self.project, self.journal = project, journal

    async def check(self, **given) -> None:
        plan = await resolve(self.project.given(**given))
        check_identity(self.journal, identity_of(plan), plan.config_text)

    async def differences(self, **given) -> str:
        with pytest.raises(ConfigError) as found:
            await self.check(**given)
        return str(found.value)


@pytest.fixture
async def begun(tmp_path):
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.config["llms"]["student"]["model_name"] = "tiny"
        with project.registered():
            plan = await resolve(project.given(validation_dataset=str(project.held_out)))
            (tmp_path / "run").mkdir()
            with Journal.create(tmp_path / "run", "run", plan.config_text, created_at=NOW) as journal:
                journal.record_identity(identity_of(plan))
                yield Begun(project, journal)


async def test_nothing_has_changed(begun):
    """The same files and settings."""
    await begun.check(validation_dataset=str(begun.project.held_out))


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("finetuning", "num_epochs", 9),
        ("finetuning", "guards", {"epochs_without_signal": 9}),
        ("finetuning", "max_failure_rate", 0.9),
        ("finetuning", "export_best", True),
    ],
)
async def test_what_ends_or_shows_a_run_may_change(begun, section, key, value):
    """More epochs, other limits, other trackers."""
    begun.project.config[section][key] = value
    await begun.check(validation_dataset=str(begun.project.held_out))


async def test_where_and_how_fast_it_works_may_change(begun, tmp_path):
    """The output folder, concurrency, time limits, and another path of the same data."""
    config = begun.project.config
    config["finetuning"]["output_dir"] = str(tmp_path / "other")
    config["eval"]["general"] |= {"max_concurrency": 1, "item_timeout": 5}
    config["llms"]["student"]["timeout"] = 7
    moved = begun.project.dataset.rename(tmp_path / "moved.json")
    config["eval"]["general"]["dataset"]["file_path"] = str(moved)
    await begun.check(validation_dataset=str(begun.project.held_out))


async def test_each_difference_is_named(begun):
    """With what it was and what it is now."""
    project = begun.project
    project.config["trajectory_builders"]["builder"]["num_generations"] = 4
    project.config["llms"]["student"]["model_name"] = "another"
    project.write_rows("train.json", 5)
    seen = await begun.differences(validation_dataset=str(project.held_out))
    assert "trajectory_builders.builder.num_generations: 2, now 4" in seen
    assert "llms.student.model: 'tiny', now 'another'" in seen
    assert "dataset: it has changed" in seen
    assert "validation dataset" not in seen
    assert "--accept_changes" in seen


async def test_a_validation_that_is_gone_is_a_difference(begun):
    """The verdict needs the same held-out examples before and after."""
    assert "validation dataset: it has changed" in await begun.differences()


async def test_another_version_is_a_difference(begun, monkeypatch):
    """An update of torch or of this package may compute other numbers."""
    monkeypatch.setattr("nat.finetuning.identity.version", lambda name: f"{name} 99")
    seen = await begun.differences(validation_dataset=str(begun.project.held_out))
    assert re.search(r"version of torch: \S+, now torch 99", seen)
    assert re.search(r"version of nat-finetuning-harness: \S+, now nat-finetuning-harness 99", seen)


async def test_other_code_of_the_workflow_is_a_difference(begun, monkeypatch, tmp_path):
    """The modules that register the configuration's components are compared."""
    (tmp_path / "fakes.py").write_text("# another agent")
    monkeypatch.setattr("fakes.finetuning_project.__file__", str(tmp_path / "fakes.py"))
    seen = await begun.differences(validation_dataset=str(begun.project.held_out))
    assert "code of fakes.finetuning_project: it has changed" in seen


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """The packages of a user and of a plug-in, each with a module `register` that imports another one."""
    packages = {"shopkeeper": tmp_path / "shopkeeper", "nat.plugins.theirs": tmp_path / "theirs"}
    for name, folder in packages.items():
        folder.mkdir()
        for file in ("__init__.py", "register.py", "prices.py"):
            (folder / file).write_text("PRICE = 1\n")
        package, module = ModuleType(name), ModuleType(f"{name}.register")
        package.__file__, module.__file__ = str(folder / "__init__.py"), str(folder / "register.py")
        monkeypatch.setitem(sys.modules, package.__name__, package)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return packages


@pytest.mark.parametrize("changed", ["shopkeeper", "nat.plugins.theirs"])
async def test_all_code_of_a_package_is_compared(begun, plugins, changed):
    """What its components import from it, too; packages of plug-ins are told apart by their names."""
    plan = await resolve(begun.project.given(validation_dataset=str(begun.project.held_out)))
    components = [create_model(f"Of{n}", __module__=f"{name}.register")() for n, name in enumerate(plugins)]
    plan = replace(plan, config=plan.config.model_copy(update={"functions": dict(enumerate(components))}))
    before = identity_of(plan).parts
    (plugins[changed] / "prices.py").write_text("PRICE = 2\n")
    now = identity_of(plan).parts
    assert {name for name in before if before[name] != now[name]} == {f"code of {changed}"}


async def test_files_of_components_are_compared(begun, tmp_path):
    """Rows to train on, and the folder of a program, by their content, wherever they are."""
    folder, config = tmp_path / "rows", begun.project.config
    (folder / "deep").mkdir(parents=True)
    (folder / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    (folder / "deep" / "agent.py").write_text("print('a')")
    config["workflow"] = {"_type": "command", "llm": "student", "command": "true", "folder": str(folder)}
    config["trajectory_builders"]["other"] = {
        "_type": "dataset_traj_builder",
        "file_path": str(folder / "rows.jsonl"),
    }
    held_out = str(begun.project.held_out)
    plan = await resolve(begun.project.given(validation_dataset=held_out))
    (tmp_path / "again").mkdir()
    with Journal.create(tmp_path / "again", "again", plan.config_text, created_at=NOW) as journal:
        journal.record_identity(identity_of(plan))
        moved, again = folder.rename(tmp_path / "moved"), Begun(begun.project, journal)
        config["workflow"]["folder"] = str(moved)
        config["trajectory_builders"]["other"]["file_path"] = str(moved / "rows.jsonl")
        await again.check(validation_dataset=held_out)
        (moved / "deep" / "agent.py").write_text("print('b')")
        seen = await again.differences(validation_dataset=held_out)
        assert "content of workflow.folder: it has changed" in seen
        assert "file_path" not in seen
        (moved / "rows.jsonl").write_text('{"prompt": "a", "completion": "c"}\n')
        seen = await again.differences(validation_dataset=held_out)
        assert "content of trajectory_builders.other.file_path: it has changed" in seen


async def test_weights_are_compared_in_pieces(begun, tmp_path):
    """A file of gigabytes is not read whole, but an update that leaves both of its ends alone is seen."""
    weights = tmp_path / "weights"
    weights.mkdir()
    with (weights / "model.safetensors").open("wb") as file:
        file.truncate(2**30)
    before = files_digest(weights)
    with (weights / "model.safetensors").open("r+b") as file:
        file.seek(2**27)
        file.write(b"\x01" * 2**27)
    assert files_digest(weights) != before


async def test_a_local_model_is_compared_by_its_files(begun, tmp_path):
    """Its folder may be elsewhere; with other weights it is another model."""
    config, first, second = begun.project.config, tmp_path / "first", tmp_path / "second"
    shutil.copytree(MODEL, first)
    config["llms"]["other"] = {"_type": "local", "model": str(first)}
    held_out = str(begun.project.held_out)
    plan = await resolve(begun.project.given(validation_dataset=held_out))
    (tmp_path / "again").mkdir()
    with Journal.create(tmp_path / "again", "again", plan.config_text, created_at=NOW) as journal:
        journal.record_identity(identity_of(plan))
        moved = Begun(begun.project, journal)
        first.rename(second)
        config["llms"]["other"] |= {"model": str(second)}
        await moved.check(validation_dataset=held_out)
        with (second / "model.safetensors").open("r+b") as weights:
            weights.seek(-1, 2)
            weights.write(b"\x01")
        seen = await moved.differences(validation_dataset=held_out)
        assert "content of llms.other.model: it has changed" in seen
