"""What disturbs a run without killing it: disks that refuse, processes that stop, another time of day, much data."""

import random

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from killed.campaign import VICTIMS, Undisturbed, at_refusals, wrong_with
from killed.playing import Kill, compare, play
from killed.processes import BACKEND, HARNESS
from killed.projects import PROJECTS, make_project
from nat.runs.journal import reading
from nat.runs.records import Phase

LATE = 0.6
"""Where in a run it trains, as a share of its time."""


@pytest.fixture
def undisturbed(forked_processes, tmp_path):
    return Undisturbed.of("plain", tmp_path / "undisturbed")


def test_a_disk_that_refuses_writes_ends_a_run_that_goes_on(undisturbed, tmp_path):
    """The end names the disk; with room on it again, the run comes to the same. `make torture` refuses each write."""
    dice, cases = random.Random("disk"), list(at_refusals(undisturbed))
    for number, where in enumerate(sorted({case.where for case in cases})):
        case = dice.choice([case for case in cases if case.where == where])
        played, wrong = wrong_with(case, undisturbed, tmp_path / f"{number}")
        assert wrong == [], (case, played.kills, *wrong)
        assert len(played.kills) == 1


@pytest.mark.parametrize("victims", VICTIMS, ids=" and ".join)
def test_a_process_that_stops_for_a_while_changes_nothing(undisturbed, tmp_path, victims):
    """As by SIGSTOP, or on a laptop that sleeps: nobody takes the other for dead."""
    make_project(tmp_path / "run", PROJECTS["plain"])
    stop = Kill(seconds=LATE * undisturbed.seconds, victims=victims, stopped=3.0)
    played = play(tmp_path / "run", [stop])
    assert played.kills == []
    assert compare(undisturbed.played, played) == []


@pytest.mark.parametrize("name", [HARNESS, BACKEND])
def test_a_clock_that_is_set_back_changes_nothing(undisturbed, tmp_path, name):
    """Limits and order depend on no time of day."""
    make_project(tmp_path / "run", PROJECTS["plain"])
    played = play(tmp_path / "run", [Kill({name: f"clock:{len(undisturbed.points[name]) // 2}"})])
    assert played.kills == []
    assert compare(undisturbed.played, played) == []
    with reading(played.run_dir) as journal:
        times = [record.timestamp for record in journal.epochs()]
    assert (times != sorted(times)) is (name == HARNESS)


async def test_a_large_dataset_of_which_epochs_play_a_few(tmp_path):
    """100,000 rows are read once, and only those that are drawn are played."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.write_rows("train.json", 100_000)
        project.config["trajectory_builders"]["builder"]["examples_per_epoch"] = 4
        with project.registered():
            await project.run()
        assert len(server.requests) == 2 * 4 * 2
        with project.journal() as journal:
            played = {each.example_id for epoch in range(2) for each in journal.rollouts(Phase.TRAIN, epoch)}
        assert len(played) == 8
