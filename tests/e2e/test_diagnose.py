"""Why a reward is flat: real runs of a tiny model, each with one planted fault, and a healthy one."""

from pathlib import Path

import pytest

from fakes.backend_here import backend_here
from fakes.made_once import made_once
from fakes.planted_faults import OF_PROJECTS, PAIRS, PLANTS, diagnosed, with_settings
from fakes.planted_project import Plant, PlantedProject, make_word_model


@pytest.fixture(scope="module")
def model(shared_folder) -> Path:
    return made_once(shared_folder / "word_model", make_word_model)


@pytest.mark.parametrize("name", PLANTS)
async def test_the_planted_cause_comes_first(tmp_path, model, capsys, monkeypatch, name):
    """`nat diagnose` names it first, and the end of the run shows its number, also if the run failed."""
    monkeypatch.setattr("nat.plugins.local.llm.running_backend", backend_here)
    found, shown = await diagnosed(PlantedProject(tmp_path, model, PLANTS[name]), capsys)
    assert [cause["cause"] for cause in found["causes"]][:1] == [name]
    assert not found["healthy"]
    assert found["causes"][0]["seen"] in shown


@pytest.mark.parametrize("mistake", OF_PROJECTS)
async def test_a_mistake_of_real_projects_is_named_first(tmp_path, model, capsys, monkeypatch, mistake):
    """Whatever else follows from it, such as scores that never differ."""
    monkeypatch.setattr("nat.plugins.local.llm.running_backend", backend_here)
    cause, plant = OF_PROJECTS[mistake]
    found, _ = await diagnosed(PlantedProject(tmp_path, model, plant), capsys)
    assert found["causes"][0]["cause"] == cause


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
async def test_of_two_faults_one_comes_first(tmp_path, model, capsys, monkeypatch, name):
    """The first cause is one of the two, and the settings of its remedy, pasted into the file, take it away.

    Other remedies change score, agent or data; what is left then is a run with the other fault alone, tested above. A
    run that learned all the same may have no cause. By chance, scores that depend on nothing look noisy alone.
    """
    monkeypatch.setattr("nat.plugins.local.llm.running_backend", backend_here)
    project = PlantedProject(tmp_path, model, PAIRS[name])
    found, _ = await diagnosed(project, capsys)
    causes = [cause["cause"] for cause in found["causes"]]
    right = {*name.split(" + "), *(["noisy_score"] if "independent_score" in name else [])}
    assert found["learned"] if not causes else causes[0] in right, causes
    await assert_remedy_helps(project, found, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
async def test_a_remedy_helps(tmp_path, model, capsys, monkeypatch, name):
    """The settings of one fault's remedy, pasted into the file as they are printed, take the fault away."""
    monkeypatch.setattr("nat.plugins.local.llm.running_backend", backend_here)
    project = PlantedProject(tmp_path, model, PLANTS[name])
    found, _ = await diagnosed(project, capsys)
    await assert_remedy_helps(project, found, capsys)


async def assert_remedy_helps(project, found, capsys):
    if found["causes"] and (settings := found["causes"][0]["settings"]):
        with_settings(project, settings)
        better, _ = await diagnosed(project, capsys)
        causes = better.get("phases", [better])[-1]["causes"]
        assert found["causes"][0]["cause"] not in [cause["cause"] for cause in causes[:1]], causes


async def test_a_healthy_run_is_called_healthy(tmp_path, model, capsys, monkeypatch):
    """Its summary has nothing more than before."""
    monkeypatch.setattr("nat.plugins.local.llm.running_backend", backend_here)
    found, shown = await diagnosed(PlantedProject(tmp_path, model, Plant(per_class=4)), capsys)
    assert found == {"run_id": found["run_id"], "healthy": True, "learned": True, "causes": []}
    assert shown.startswith("\nImproved: ")
    assert "nat diagnose" not in shown
