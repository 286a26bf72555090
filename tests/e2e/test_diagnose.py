"""Why a reward is flat: real runs of a tiny model, each with one planted fault, and a healthy one."""

from pathlib import Path

import pytest

from fakes.backend_here import backend_here
from fakes.made_once import made_once
from fakes.planted_faults import OF_PROJECTS, PLANTS, diagnosed
from fakes.planted_project import Plant, PlantedProject, make_word_model

FAULTS = {**{name: (name, plant) for name, plant in PLANTS.items()}, **OF_PROJECTS}


@pytest.fixture(scope="module")
def model(shared_folder) -> Path:
    return made_once(shared_folder / "word_model", make_word_model)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
async def test_the_planted_cause_comes_first(tmp_path, model, capsys, monkeypatch, name):
    """`nat diagnose` names it first, and the end of the run shows its number, also if the run failed."""
    monkeypatch.setattr("nat.plugins.local.llm.running_backend", backend_here)
    cause, plant = FAULTS[name]
    found, shown = await diagnosed(PlantedProject(tmp_path, model, plant), capsys)
    assert [each["cause"] for each in found["causes"]][:1] == [cause]
    assert not found["healthy"]
    assert found["causes"][0]["seen"] in shown


@pytest.mark.slow
async def test_a_healthy_run_is_called_healthy(tmp_path, model, capsys, monkeypatch):
    """Its summary has nothing more than before."""
    monkeypatch.setattr("nat.plugins.local.llm.running_backend", backend_here)
    found, shown = await diagnosed(PlantedProject(tmp_path, model, Plant(per_class=4)), capsys)
    assert found == {"run_id": found["run_id"], "healthy": True, "learned": True, "causes": []}
    assert shown.startswith("\nImproved: ")
    assert "nat diagnose" not in shown
