"""A run goes on only as the run that it was."""

from datetime import UTC, datetime

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.errors import ConfigError
from nat.finetuning.identity import check_resumed, identity_of
from nat.finetuning.plan import resolve
from nat.runs.journal import Journal

NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Begun:
    """A run's journal, as it is when the run has begun, and its project, which may change."""

    def __init__(self, project: FinetuningProject, journal: Journal) -> None:
        self.project, self.journal = project, journal

    async def check(self, **given) -> None:
        plan = await resolve(self.project.given(**given))
        check_resumed(self.journal.run_dir, identity_of(plan), accept_changes=False)

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
                journal.record(identity_of(plan))
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


async def test_files_of_rows_are_compared(begun, tmp_path):
    """Rows to train on, by their content, wherever they are."""
    rows, config = tmp_path / "rows.jsonl", begun.project.config
    rows.write_text('{"prompt": "a", "completion": "b"}\n')
    config["trajectory_builders"]["other"] = {"_type": "dataset_traj_builder", "file_path": str(rows)}
    held_out = str(begun.project.held_out)
    plan = await resolve(begun.project.given(validation_dataset=held_out))
    (tmp_path / "again").mkdir()
    with Journal.create(tmp_path / "again", "again", plan.config_text, created_at=NOW) as journal:
        journal.record(identity_of(plan))
        moved, again = rows.rename(tmp_path / "moved.jsonl"), Begun(begun.project, journal)
        config["trajectory_builders"]["other"]["file_path"] = str(moved)
        await again.check(validation_dataset=held_out)
        moved.write_text('{"prompt": "a", "completion": "c"}\n')
        seen = await again.differences(validation_dataset=held_out)
        assert "trajectory_builders.other.file_path: it has changed" in seen
