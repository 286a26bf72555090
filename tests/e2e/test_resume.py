"""A run that was killed goes on, and comes to what it would have come to. `make torture` kills it everywhere."""

import random

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from killed.campaign import Undisturbed, at_each_point, at_instants, at_two_points, wrong_with
from nat.errors import ConfigError
from nat.finetuning.runtime import run_finetuning
from nat.runs.records import RunState

PLACES = ("harness, journal", "backend, checkpoints and jobs")
"""Where each write is one that others rely on."""


@pytest.mark.usefixtures("forked_processes")
@pytest.mark.parametrize("project", ["plain", "phases", "pairs", "teacher", "team"])
def test_a_killed_run_comes_to_the_same(project, tmp_path):
    """No rollout, job or judge's call twice, none missing, and equal metrics, weights and files.

    It is killed at operations and instants that are drawn here, and goes on; with overlap, its weights are those of the
    batches that it trained.
    """
    dice = random.Random(project)
    run = Undisturbed.of(project, tmp_path / "undisturbed")
    cases = list(at_instants(run, 2, dice))
    if project in ("plain", "phases"):
        points = list(at_each_point(run))
        cases = [*cases[1:], *at_two_points(run, project == "plain", dice)]
        cases += [dice.choice([case for case in points if case.where == place]) for place in PLACES]
    for number, case in enumerate(cases):
        played, wrong = wrong_with(case, run, tmp_path / f"{number}")
        assert wrong == [], (case, played.kills, *wrong)


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
