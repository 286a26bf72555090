"""A probe in rounds: what it says between them, when it ends, and what it remembers for the next plan."""

import asyncio
import itertools

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.forecasts import FORECAST
from fakes.openai_server import OpenAIServer
from nat.errors import BackendError, RunFailed
from nat.finetuning.dry_run import dry_run
from nat.finetuning.events import Said
from nat.finetuning.probe.records import Ending, Signal
from nat.finetuning.probe.run import RESCORED, ProbeOptions, probe

GENERATIONS = 2


@pytest.fixture
async def project(tmp_path):
    """A project of 40 examples, of whose two rollouts each one is right; four are played at a time."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.dataset = project.write_rows("train.json", 40)
        project.config["eval"]["general"]["dataset"]["file_path"] = str(project.dataset)
        project.config["trainer_adapters"]["adapter"]["llm"] = "student"
        with project.registered():
            yield project


async def probed(project, *, step: float = 0.0, **options):
    """The report, and what was said meanwhile; each look at the clock takes `step` seconds."""
    said, clock = [], itertools.count(0.0, step)
    options = ProbeOptions(generations=GENERATIONS, **options)
    observe = lambda event: said.append(event.text) if isinstance(event, Said) else None  # noqa: E731 - an observer
    result = await probe(project.given(), options, observe=observe, clock=lambda: next(clock))
    return result.report, said


async def test_it_ends_when_the_answer_is_clear(project):
    """All groups differ, so two looks agree; the last round has eight rollouts, two for each place."""
    report, said = await probed(project)
    assert (report.signal, report.ending) == (Signal.FOUND, Ending.CLEAR)
    assert [line.partition(" (")[0] for line in said] == ["after 2 examples", "after 4 examples", "after 8 examples"]
    assert said[-1].endswith("8 of 8 groups have a difference in reward (95% interval 63% to 100%), mean reward 0.5")
    assert report.measured.num_rollouts == 16


async def test_it_ends_when_the_time_is_over(project):
    """A round is as large as there is time for, and what was played by then is judged."""
    report, said = await probed(project, step=50.0, minutes=3)
    assert report.ending is Ending.TIME
    assert report.measured.num_rollouts == GENERATIONS * len(report.measured.examples) < GENERATIONS * 40
    assert said
    assert report.signal is Signal.FOUND


async def test_without_a_bound_it_plays_on(project):
    """The same clock with `--minutes 0` leaves time for the answer to be clear."""
    report, _ = await probed(project, step=50.0, minutes=0)
    assert report.ending is Ending.CLEAR


async def test_first_rollouts_that_do_not_end_are_an_error(project):
    """Nothing is known then; the error has the options that would help."""

    async def stuck(question, ask):
        await asyncio.sleep(3600)

    project.agent = stuck
    with pytest.raises(RunFailed, match="the rollouts of the first 2 examples did not end in") as caught:
        await probed(project, minutes=0.001)
    assert "--minutes" in str(caught.value)


async def test_the_noise_is_measured_on_the_first_examples(project):
    """Outputs of further examples are not scored again: a judge has its price."""
    project.agent = always_right
    report, _ = await probed(project, examples=40)
    assert len(report.measured.examples) == 40, "without a difference nothing is clear"
    assert report.measured.noise.outputs == GENERATIONS * RESCORED


async def always_right(question, ask):
    await ask(question)
    return "right"


async def test_the_next_plan_knows_what_rollouts_took(project):
    """Lengths, seconds and the share of groups that differ are those of the probe; a run's own are newer evidence."""
    project.adapter.forecasted = FORECAST
    before = await dry_run(project.given())
    report, _ = await probed(project)
    plan = await dry_run(project.given())
    assert (before.load.assumed, plan.load.assumed) == (True, False)
    assert plan.load.basis.startswith("in the probe of ")
    assert (plan.load.groups, plan.load.differing, plan.load.rollouts) == (8, 8, 16)
    assert plan.load.seconds == report.pace
    assert plan.epoch_seconds.rollouts == 80 * report.pace
    await project.run()
    assert (await dry_run(project.given())).load.basis.startswith("in run ")


async def test_groups_of_another_size_say_nothing_of_the_share(project):
    """The YAML has three generations, the probe played two."""
    project.config["trajectory_builders"]["builder"]["num_generations"] = 3
    await probed(project)
    assert (await dry_run(project.given())).load.groups == 0


async def test_another_workflow_has_its_own_memory(project):
    """A probe of another agent's prompt is no evidence."""
    await probed(project)
    project.config["llms"]["student"]["model_name"] = "another"
    assert (await dry_run(project.given())).load.assumed


async def test_the_probe_proposes_what_the_plan_proposes(project):
    """Both have seen the same rollouts and the same forecast."""
    project.adapter.forecasted = FORECAST
    report, _ = await probed(project)
    plan = await dry_run(project.given())
    assert report.proposals == plan.proposals
    assert any(each.settings.startswith("llms: {student: {max_tokens: ") for each in plan.proposals)
    assert report.epoch == plan.epoch_seconds
    [request] = project.adapter.forecasts[:1]
    assert request.num_rollouts == 80


async def test_without_a_signal_no_speed_is_measured(project):
    """Nobody will train on these examples."""
    project.agent, project.adapter.forecasted = always_right, FORECAST
    report, _ = await probed(project, examples=4)
    assert (report.signal, report.epoch, project.adapter.forecasts) == (Signal.NONE, None, [])


async def test_a_backend_that_fails_at_the_end_costs_no_report(project, monkeypatch):
    """What was played and paid for is shown; the time of an epoch is missing, and why."""

    async def failing(_request):
        raise BackendError("the backend died")

    monkeypatch.setattr(project.adapter, "forecast", failing)
    report, said = await probed(project)
    assert (report.signal, report.epoch) == (Signal.FOUND, None)
    assert said[-1] == "the speed could not be measured: the backend died"
