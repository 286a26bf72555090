"""A third-party plug-in, written by the documentation of the toolkit's release 1.9, in every command."""

import json
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from fakes.finetuning_project import blank_plot
from nat.cli.main import exit_code
from nat.data_models.finetuning import FinetuneRunConfig
from nat.finetuning.runtime import run_finetuning
from nat.registry import discovery
from nat.registry.catalog import pushed_catalog
from nat.runs.records import Verdict

pytest.importorskip("pandas")
YAML = Path(__file__).parents[1] / "fakes" / "plugin_of_1_9" / "config.yml"
PACKAGE = "fakes.plugin_of_1_9"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The plug-in installed beside a project with its data; both are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCOREBOARD_KEY", "sk-board")
    (tmp_path / "data").mkdir()
    for name, numbers in (("train", range(1, 5)), ("held_out", range(101, 141))):
        lines = "".join(f"{n}|how loud is {n}?|high\n" for n in numbers)
        (tmp_path / "data" / f"{name}.pipes").write_text(f"number|question|answer\n{lines}")
    info = tmp_path / "site" / "plugin_of_1_9-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-1-9\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[nat.components]\nplugin_{uuid4().hex} = {PACKAGE}.register\n")
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]
    failures = list(discovery.failures)
    with pushed_catalog():  # what the plug-in registers inside is forgotten
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        yield tmp_path
    discovery.failures[:] = failures


def module(name: str):
    return sys.modules[f"{PACKAGE}.{name}"]


def test_its_evaluation(installed, capsys):
    """Its DataFrame is the dataset, its ids stay numbers, and its callback gets the scores."""
    assert exit_code(["eval", "--config_file", str(YAML), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["evaluators"][0]["scored"] == 4
    [(project, key, metrics, scores)] = module("agent").Scoreboard.shown
    assert (project, key) == ("dials", "sk-board")
    assert list(scores) == [1, 2, 3, 4]
    assert metrics == {"words": sum(each["words"] for each in scores.values()) / 4}
    written = json.loads((installed / "reports" / "words_output.json").read_text())
    assert [item["id"] for item in written["eval_output_items"]] == [1, 2, 3, 4]
    assert "sk-board" not in (installed / "reports" / "config_effective.yml").read_text()


async def test_it_trains(installed):
    """Its builder, its adapter and its model train with our trainer, and the held-out questions show it."""
    given = FinetuneRunConfig(config_file=YAML, validation_dataset="data/held_out.pipes", validation_interval=3)
    result = await run_finetuning(given, plotter=blank_plot)
    assert [status.status for status in result.statuses] == ["completed"] * 6
    assert result.summary.verdict is Verdict.IMPROVED
    assert module("dial").DIALS["dial"].weight > 1
    assert module("agent").Scoreboard.shown == []


def test_what_is_missing_is_named(installed, capsys):
    """The part that needs a retriever is named; all other parts are registered."""
    assert exit_code(["info", "components", "-q", "dial"]) == 0
    shown = capsys.readouterr()
    assert "llms: dial  (fakes/dial, fakes.plugin_of_1_9.dial)" in shown.out
    assert "RetrieverBaseConfig" in shown.err
    assert "this project has no such name" in shown.err
