"""`nat finetune` from its arguments to its output; the model is a scripted server."""

import asyncio
import json
import os
import re
import shlex
import sqlite3
from pathlib import Path

import pytest

from fakes.finetuning_project import FinetuningProject, blank_plot_process
from nat.cli.commands.finetune import summary_text, use_command
from nat.cli.main import exit_code
from nat.data_models.finetuning import FinetuneRunConfig, ServedModel, TrainingStatusEnum
from nat.data_models.rollout_failure import FailureCount
from nat.finetuning.runtime import RunResult
from nat.finetuning.verdict import Comparison, compare
from nat.runs.find import started_here
from nat.runs.journal import JOURNAL_NAME, Journal
from nat.runs.liveness import marked_alive
from nat.runs.records import BestEpoch, BestMeasure, Finding, Phase, RunState, RunSummary

PAGE = 40
"""Lines."""


@pytest.fixture(autouse=True)
def _plots(monkeypatch):
    monkeypatch.setattr("nat.runs.plot.run_module", blank_plot_process)


async def nat(project: FinetuningProject, *arguments: str) -> int:
    """Run the command in a thread, so that the server in this loop can answer it."""
    path = project.given().config_file
    assert isinstance(path, Path)
    return await asyncio.to_thread(
        exit_code, ["--log-level", "error", "finetune", "--config_file", str(path), *arguments]
    )


def validated_epochs(project: FinetuningProject) -> list[int]:
    with project.journal() as journal:
        return [record.epoch for record in journal.validations()]


async def test_the_summary_has_the_verdict_and_the_paths(project, capsys):
    """The summary has the verdict in words, its numbers, and the paths."""
    assert await nat(project, "--validation_dataset", str(project.held_out)) == 0
    shown = capsys.readouterr().out
    run_dir = (project.output_dir / "latest").resolve()
    labels = [line.split()[0] for line in shown.splitlines()[-3:]]
    assert labels == ["Trained", "Folder", "Next"]
    assert re.search(rf"\nFolder +{run_dir}, \d+ kB\n", shown)


async def test_the_trained_model_comes_with_the_command_that_uses_it(project, capsys):
    """Pasted, it plays the workflow with the new model on a question of the run, and with the options of the run."""
    with_llm = project.adapter.adapter_config.model_copy(update={"llm": "student"})
    project.adapter.adapter_config = with_llm
    project.config["trainer_adapters"]["adapter"]["llm"] = "student"
    project.adapter.exported = project.folder / "my model"
    url = ("-o", "llms.student.base_url", project.server.base_url)
    assert await nat(project, *url, "-o", "finetuning.num_epochs", "1") == 0
    command = re.search(r"\nUse it +(.*)\n", capsys.readouterr().out)[1]
    words = shlex.split(command)
    assert [*url] == words[3:6]
    assert ["llms.student.model", str(project.folder / "my model"), "--input", "q0"] == words[7:]
    words[7:9] = ["llms.student.model_name", "trained"]  # the fake server takes any name
    assert await asyncio.to_thread(exit_code, words[1:]) == 0
    assert "Workflow Result:\n" in capsys.readouterr().out
    assert project.server.requests[-1].body["model"] == "trained"


def test_the_command_and_the_export_name_the_same_weights():
    """The best ones if the run has kept them, the last otherwise; with several models those of each."""
    best = BestEpoch(epoch=1, score=0.9, measure=BestMeasure.HELD_OUT, checkpoint="checkpoints/step_000001")
    cases = {
        "runs/r/model": {},
        "runs/r/checkpoints/step_000001": {"best": best},
        "runs/r/best_model": {"best": best, "best_model": "best_model"},
    }
    for place, fields in cases.items():
        text = shown(epochs=3, model="model", **fields)
        assert f"\nModel      {place}\n" in text
        assert f" -o llms.student.model {place} " in text
        assert "\nExport it  nat runs export runs/r\n" in text
    text = shown(epochs=3, model="model", best=best.model_copy(update={"epoch": 0, "checkpoint": None}))
    assert " -o llms.student.model runs/r/model " in text
    assert "the last; the best: held-out score 0.900 before training" in text
    assert "nat runs export runs/r --checkpoint last" in text


async def test_json_is_one_object_on_stdout(project, capsys):
    """The output is `summary.json` with the run's folder, and nothing else."""
    assert await nat(project, "--validation_dataset", str(project.held_out), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    written = json.loads((Path(told["run_dir"]) / "summary.json").read_text())
    assert {**written, "run_dir": told["run_dir"]} == told


FAILS_IN_EPOCH_2 = ({}, {"status": TrainingStatusEnum.FAILED, "message": "the backend lost its card"})


async def test_a_failed_run_goes_on(project, capsys):
    """With the options that it began with, from the epoch that failed; its rollouts are not played again."""
    project.finetuning["num_epochs"] = 3
    project.adapter.outcomes = FAILS_IN_EPOCH_2
    assert await nat(project, "--validation_dataset", str(project.held_out)) == 1
    played = len(project.server.requests)
    project.adapter.outcomes = ()
    run_dir = (project.output_dir / "latest").resolve()
    assert await asyncio.to_thread(exit_code, ["--log-level", "error", "finetune", "--resume", str(run_dir)]) == 0
    assert f" {run_dir}, " in capsys.readouterr().out
    assert len(project.server.requests) == played + 2 * 4 + 8  # epoch 3, and the held-out examples after it
    first, second, again, third = project.adapter.submitted
    assert second == again
    assert [first.job_id, again.job_id, third.job_id] == [f"{run_dir.name}-{n:06}" for n in (1, 2, 3)]
    with project.journal() as journal:
        assert (journal.num_epochs(), journal.info().state) == (3, RunState.COMPLETED)
        assert [record.epoch for record in journal.validations()] == [0, 1, 3]


async def test_the_newest_unfinished_run_goes_on(project):
    """In the output folder of the YAML; a completed run is left alone, after which `auto` begins a new one."""
    project.adapter.outcomes = FAILS_IN_EPOCH_2
    assert await nat(project) == 1
    failed = (project.output_dir / "latest").resolve()
    project.adapter.outcomes = ()
    await asyncio.sleep(1)  # an id begins with the second
    assert await nat(project) == 0
    assert await nat(project, "--resume=auto") == 0
    with Journal.open(failed, read_only=True) as journal:
        assert journal.info().state is RunState.FAILED
    assert await nat(project, "--resume") == 0
    with Journal.open(failed, read_only=True) as journal:
        assert journal.info().state is RunState.COMPLETED


async def test_without_an_unfinished_run_auto_begins_one(project, capsys, monkeypatch):
    """A plain `--resume` is refused; the message says where none is. A run that begins needs a YAML."""
    monkeypatch.chdir(project.folder)
    assert await asyncio.to_thread(exit_code, ["finetune", "--resume=auto"]) == 2
    said = "There is no unfinished run that was started in this folder, and to begin one: missing option"
    assert said in " ".join(capsys.readouterr().err.split())
    assert await nat(project, "--resume=auto") == 0
    assert await nat(project, "--resume") == 1
    assert f"there is no unfinished run among those below {project.output_dir}" in capsys.readouterr().err


async def test_a_completed_run_with_more_epochs_goes_on(project, capsys):
    """The epochs that it has stay, and the run is one of three epochs."""
    assert await nat(project) == 0
    project.finetuning["num_epochs"] = 3
    assert await nat(project, "--resume", str((project.output_dir / "latest").resolve())) == 0
    assert len(project.adapter.submitted) == 3
    assert await asyncio.to_thread(exit_code, ["runs", "list", "--output_dir", str(project.output_dir)]) == 0
    assert " 3/3 " in capsys.readouterr().out


async def test_another_run_does_not_go_on(project, capsys):
    """Each difference is named, and nothing is played; a flag accepts them."""
    project.adapter.outcomes = FAILS_IN_EPOCH_2
    assert await nat(project) == 1
    played = len(project.server.requests)
    project.config["finetuning"]["seed"] = 7
    assert await nat(project, "--resume") == 1
    assert "finetuning.seed: 0, now 7" in capsys.readouterr().err
    assert len(project.server.requests) == played
    with project.journal() as journal:
        assert "the backend lost its card" in journal.info().message, "the run is as it was"
    project.adapter.outcomes = ()
    assert await nat(project, "--resume", "--accept_changes") == 0


async def test_a_run_that_trains_does_not_go_on_twice(project, capsys):
    """The message names the process; `auto` begins no other run beside it."""
    project.adapter.outcomes = FAILS_IN_EPOCH_2
    assert await nat(project) == 1
    run_dir = (project.output_dir / "latest").resolve()
    for name in (str(run_dir), "auto"):
        capsys.readouterr()
        with marked_alive(run_dir):
            assert await nat(project, f"--resume={name}") == 1
        assert f"the run {run_dir.name} is going on, in process {os.getpid()}" in capsys.readouterr().err
    assert (project.output_dir / "latest").resolve() == run_dir


async def test_a_yaml_that_is_gone_is_asked_for(project, capsys):
    """A run knows the path of its YAML; on another machine it is elsewhere."""
    assert await nat(project) == 0
    (project.folder / "config.yml").unlink()
    run_dir = (project.output_dir / "latest").resolve()
    assert await asyncio.to_thread(exit_code, ["finetune", "--resume", str(run_dir)]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "which is not there" in told
    assert f"go to {Path.cwd()}, where it was started, or give --config_file" in told


async def test_dry_run_shows_the_plan_and_trains_nothing(project, capsys):
    """The plan has the run's numbers on a page, without the YAML; nothing is written and no model is called."""
    assert await nat(project, "--validation_dataset", str(project.held_out), "--dry_run") == 0
    shown = capsys.readouterr().out
    assert "8 per epoch, from 4 examples, 4 at a time" in shown
    assert "8 examples, before, every 5 epochs, and after" in shown
    assert "a rise of the mean by +0.75 or more if no example gets worse" in shown
    assert len(shown.splitlines()) < PAGE
    assert "num_generations" not in shown
    assert not project.output_dir.exists()
    assert not project.adapter.submitted


async def test_validation_interval_has_an_effect(project):
    """Validations run before the first epoch, after the last, and at the interval in between."""
    assert await nat(project, "--validation_dataset", str(project.held_out)) == 0
    assert validated_epochs(project) == [0, 2]
    assert await nat(project, "--validation_dataset", str(project.held_out), "--validation_interval", "1") == 0
    assert validated_epochs(project) == [0, 1, 2]


async def test_validation_config_file_has_an_effect(project):
    """Held-out examples are scored by the other YAML's evaluator."""
    project.agent = lambda question, ask: asyncio.sleep(0, "0.25") if question in held_out else ask(question)
    held_out = {f"held out {i}" for i in range(8)}
    rows = [{"id": text, "question": text, "answer": ""} for text in sorted(held_out)]
    project.held_out.write_text(json.dumps(rows))
    other = project.folder / "validation.yml"
    project.config["eval"]["evaluators"]["match"] = {"_type": "json_path_score", "path": "$"}
    project.given().config_file.rename(other)
    project.config["eval"]["evaluators"]["match"] = {"_type": "exact_match"}
    arguments = ("--validation_dataset", str(project.held_out), "--validation_config_file", str(other))
    assert await nat(project, *arguments) == 0
    with project.journal() as journal:
        assert [record.avg_reward for record in journal.validations()] == [0.25, 0.25]
        assert journal.epochs()[0].avg_reward == 0.5


async def test_result_json_path_has_an_effect(project):
    """The answer is read from inside the workflow's output."""

    async def wrapped(question, ask):
        return json.dumps({"answer": await ask(question)})

    project.agent = wrapped
    assert await nat(project) == 1
    assert await nat(project, "--result_json_path", "$.answer") == 0
    with project.journal() as journal:
        assert {record.reward for record in journal.rollouts(Phase.TRAIN, 0)} == {0.0, 1.0}


SUMMARY = RunSummary(run_id="r", epochs=1, seconds=61.0, tokens_trained=59792)


def shown(comparison: Comparison | None = None, **fields) -> str:
    summary = SUMMARY.model_copy(update=fields)
    given = FinetuneRunConfig(config_file=Path("c.yml"))
    return summary_text(RunResult("r", Path("runs/r"), [], summary, comparison, ("student",), question="q"), given)


def test_the_verdict_comes_first_and_each_of_its_numbers_once():
    """One sentence has before, after, difference and interval in one unit."""
    before, after = ({str(i): float(i < wins) for i in range(10)} for wins in (2, 9))
    comparison = compare(before, after)
    text = shown(comparison)
    assert text.startswith(f"\n{comparison.sentence}\n")
    assert [text.count(number) for number in ("0.200", "0.900", "+0.700")] == [1, 1, 1]
    assert "20.0%" not in text


def test_a_run_without_held_out_examples_reports_no_verdict():
    """A summary without a verdict says so, because silence would look like success."""
    assert "No verdict: there was no validation dataset." in shown()


def test_the_two_likeliest_causes_follow_the_verdict():
    """Each is a paragraph with its number, the healthy range and the remedy; `nat diagnose` has the others."""
    assert "nat diagnose" not in shown()
    causes = [
        Finding(cause=name, title=f"Title {name}", share=0.5, seen="10 of 9", healthy="below 3", remedy="Do it.")
        for name in "abc"
    ]
    text = shown(causes=causes)
    assert "\n\nTitle a: 10 of 9 (healthy: below 3). Do it.\n\nTitle b: 10 of 9" in text
    assert "Title c" not in text
    assert "nat diagnose runs/r\n\nTrained  1 epoch" in text


def test_a_model_on_a_server_comes_with_its_overrides():
    """Without the overrides, the YAML would use the base model."""
    served = ServedModel(
        name="my_run@20", base_url="http://localhost:8000/v1", overrides=(("llms.a.model_name", "my_run"),)
    )
    assert str(served) == "my_run@20 at http://localhost:8000/v1"
    given = FinetuneRunConfig(config_file=Path("finetune.yml"), override=(("finetuning.seed", "1"), ("llms.a.x", "y")))
    expected = "nat run --config_file=finetune.yml -o llms.a.x y -o llms.a.model_name my_run --input 'How much?'"
    assert use_command(served.overrides, "How much?", given) == expected


def test_failures_are_counted_by_cause_with_an_error_a_remedy_and_the_tracebacks():
    """A successful run still reports its failed rollouts."""
    assert "Failed" not in shown()
    failures = [
        FailureCount(cause="the workflow raised an error", count=64, error="KeyError: 'city\x1b[2J'"),
        FailureCount(cause="the evaluator gave no score", count=2, error="the score is nan, not a finite number"),
    ]
    text = shown(rollouts=1920, failures=failures, failures_file="failures.txt")
    assert "66 of 1,920 rollouts" in text
    assert "64 x the workflow raised an error: KeyError: 'city\\x1b[2J'" in text, "it cannot clear the screen"
    assert "2 x the evaluator gave no score: the score is nan" in text
    assert "→ Fix the workflow" in text
    assert "Tracebacks  runs/r/failures.txt" in text


@pytest.fixture
async def of_others(project, tmp_path, monkeypatch):
    """A run that failed, as another user sees its folder."""
    project.adapter.outcomes = FAILS_IN_EPOCH_2
    assert await nat(project) == 1
    project.adapter.outcomes = ()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another user"))
    return (project.output_dir / "latest").resolve()


async def test_the_yaml_of_a_run_of_others_is_shown_first(project, of_others, capsys):
    """It runs code, so nothing is run before the user has agreed; then the run is theirs."""
    played = len(project.server.requests)
    resume = ["--log-level", "error", "finetune", "--resume", str(of_others)]
    assert await asyncio.to_thread(exit_code, resume) == 1
    told = capsys.readouterr().err
    assert f"the run began with {project.folder / 'config.yml'}" in told
    assert "add --trust" in told
    assert len(project.server.requests) == played
    assert await asyncio.to_thread(exit_code, [*resume, "--trust"]) == 0
    assert started_here(of_others)


async def test_with_its_own_yaml_a_run_of_others_goes_on(project, of_others):
    """What is given on the command line needs no word of the folder, as in a container that has no home."""
    assert not started_here(of_others)
    assert await nat(project, "--resume=auto") == 0


@pytest.mark.parametrize("recorded", ["[1]", "{config_file: [], validation_interval: x}"])
async def test_options_that_are_none_end_in_words(project, of_others, recorded, capsys):
    """Whatever a folder says."""
    with sqlite3.connect(of_others / JOURNAL_NAME) as connection:
        text = f"finetuning: {{run_configuration: {recorded}}}"
        changed = "UPDATE records SET record = json_set(record, '$.config_text', ?) WHERE kind = 'RunInfo'"
        connection.execute(changed, [text])
    assert await asyncio.to_thread(exit_code, ["finetune", "--resume", str(of_others), "--trust"]) == 1
    assert "has not recorded the options that it began with" in capsys.readouterr().err
