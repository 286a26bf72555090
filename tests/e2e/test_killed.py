"""A run that is killed anywhere goes on, and comes to what it would have come to: each update once, nothing lost."""

from functools import cache
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from fakes.damage import flip_a_bit
from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from killed.playing import PROJECTS, calls_more, differences, facts, make_project, run
from killed.processes import POINTS
from nat.errors import ConfigError
from nat.finetuning.runtime import run_finetuning
from nat.runs.records import RunState
from nat.wire.model_folder import forget_optimizer

UNSAVED = "the journal has the epoch, no checkpoint"
SIGKILLED = (-9, 137)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a project whose run was not killed."""

    @cache
    def played(project: str) -> Path:
        folder = tmp_path_factory.mktemp("undisturbed") / project
        make_project(folder, project)
        code, output = run(folder)
        assert code == 0, output
        return folder

    return played


def goes_on(folder: Path, undisturbed: Path) -> None:
    code, output = run(folder)
    assert code == 0, output
    assert list(differences(facts(undisturbed), facts(folder))) == []
    assert calls_more(undisturbed, folder) <= 1


def killed(folder: Path, project: str, point: str) -> None:
    make_project(folder, project)
    code, output = run(folder, point)
    assert code in SIGKILLED, (code, output)


@pytest.mark.usefixtures("forked_processes")
def test_an_update_that_no_checkpoint_has_is_trained_again_from_the_journal(undisturbed, tmp_path):
    """Its epoch is recorded, so nothing is played again; weights, scores, verdict and files are equal to the bit."""
    killed(tmp_path / "run", "plain", UNSAVED)
    goes_on(tmp_path / "run", undisturbed("plain"))


CASES = [("plain", point) for point in POINTS if point != UNSAVED]
CASES += [(project, UNSAVED) for project in PROJECTS if project != "plain"]
CASES += [("phases", "in the update"), ("teacher", "the batch is kept, not sent"), ("team", "in the update")]


@pytest.mark.slow
@pytest.mark.usefixtures("forked_processes")
@pytest.mark.parametrize(("project", "point"), CASES)
def test_a_killed_run_comes_to_the_same(undisturbed, tmp_path, project, point):
    """No rollout, job or judge's call twice, none missing, and equal metrics, weights and files."""
    killed(tmp_path / "run", project, point)
    goes_on(tmp_path / "run", undisturbed(project))


KILLS = 60
KILLS_OF_A_RUN = 3
"""The first kills the run, the others those that go on with it."""


@pytest.mark.slow
@pytest.mark.usefixtures("forked_processes")
def test_a_run_is_killed_at_random_instants_and_comes_to_the_same(undisturbed, tmp_path):
    """So does each run that goes on with it: each epoch and update once, equal weights, no finished rollout again."""
    whole, random, killed_in_all = undisturbed("plain"), Random(0), 0
    make_project(tmp_path / "timed", "plain")
    began = monotonic()
    assert run(tmp_path / "timed")[0] == 0
    seconds = monotonic() - began
    for number in range(KILLS):
        folder = tmp_path / f"{number}"
        make_project(folder, "plain")
        instants, kills, code = [*(random.uniform(0, seconds) for _ in range(KILLS_OF_A_RUN)), ""], 0, None
        while code != 0:
            code, output = run(folder, str(instants[kills]))
            assert code == 0 or (code in SIGKILLED and kills < KILLS_OF_A_RUN), (instants, output)
            kills += code != 0
        assert list(differences(facts(whole), facts(folder))) == [], instants
        assert calls_more(whole, folder) <= kills, instants
        killed_in_all += kills
        if killed_in_all >= KILLS:
            return
    raise AssertionError(f"only {killed_in_all} kills")


@pytest.mark.slow
@pytest.mark.usefixtures("forked_processes")
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(undisturbed, tmp_path):
    """The batch of the update that is lost with it is trained again; the damaged folder stays beside the others.

    Its weights are whole, but not the optimizer's state, so the run says that moments begin anew, and comes close.
    """
    folder = tmp_path / "run"
    killed(folder, "plain", "the journal has the epoch and a checkpoint")
    before, newest = sorted((folder / "runs/latest/checkpoints").glob("step_*"))
    forget_optimizer(before)  # as the backend does it, unless it is killed first
    flip_a_bit(newest / "model.safetensors")
    code, output = run(folder)
    assert code == 0, output
    assert "so the optimizer's moments begin anew" in output
    expected, found = facts(undisturbed("plain")), facts(folder)
    assert {name for name in found if f"{newest.name}.damaged" not in name} == expected.keys()
    assert [job["id"] for job in found["jobs"]] == [job["id"] for job in expected["jobs"]]
    assert found["state"] == "completed"


@pytest.fixture
async def project(tmp_path):
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered():
            yield project


async def test_a_run_that_is_not_resumed_stays_as_it_is(project):
    """With other data it is refused, and a completed one stays completed."""
    result = await project.run()
    files = {path: path.read_bytes() for path in result.run_dir.iterdir() if path.is_file()}
    project.write_rows("train.json", 5)
    with pytest.raises(ConfigError, match="dataset: it has changed"):
        await run_finetuning(project.given(), resume=result.run_dir)
    with project.journal() as journal:
        assert journal.info().state is RunState.COMPLETED
    assert {path: path.read_bytes() for path in result.run_dir.iterdir() if path.is_file()} == files
