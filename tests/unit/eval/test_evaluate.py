"""One evaluation, from a YAML and a dataset to scores and files."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
import yaml

from fakes.llm_steps import call, steps, user
from fakes.scripted_workflow import ScriptedWorkflow
from nat.builder.context import Context
from nat.builder.dataset_loader import DatasetLoaderInfo
from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.load import load_config
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvalOutput, EvalOutputItem
from nat.errors import DatasetError, EvaluationError, NatError
from nat.eval.evaluate import EvaluationRun, EvaluationRunConfig
from nat.registry.decorators import register_dataset_loader
from nat.rollout.session import WorkflowSession, in_pass, using_session

ROWS = [{"id": "a", "question": "0042", "answer": "0042"}, {"id": "b", "question": "7", "answer": "8"}]


async def echo(question: str):
    return question


async def evaluated(scripted: ScriptedWorkflow, *, job_id=None, **options):
    with scripted.registered():
        config = EvaluationRunConfig(config_file=scripted.config_file, **options)
        return await EvaluationRun(config).run_and_evaluate(job_id=job_id)


def ids(output) -> list[str]:
    return [item.id for item in output.eval_input.eval_input_items]


def scores(output, evaluator="match") -> dict[str, float | None]:
    return {item.id: item.score for item in output.results_of(evaluator).eval_output_items}


async def test_every_row_is_played_and_scored(tmp_path: Path):
    """Evaluators get items with answer and steps; scores have the evaluator, the id and a mean."""
    output = await evaluated(ScriptedWorkflow(tmp_path, echo, ROWS))
    assert scores(output) == {"a": 1.0, "b": 0.0}
    assert output.results_of("match").average_score == 0.5
    assert [item.output_obj for item in output.eval_input.eval_input_items] == ["0042", "7"]
    kinds = [step.event_type.value for step in output.eval_input.eval_input_items[0].trajectory]
    assert kinds == ["WORKFLOW_START", "FUNCTION_START", "FUNCTION_END", "WORKFLOW_END"]
    assert output.eval_input.eval_input_items[0].trajectory[1].name == "<workflow>"
    assert not output.workflow_interrupted


async def test_only_the_chosen_examples_are_played(tmp_path: Path):
    """The choice gets all ids of the dataset; the other rows are not in the output."""
    scripted = ScriptedWorkflow(tmp_path, echo, ROWS)
    with scripted.registered():
        config = EvaluationRunConfig(config_file=scripted.config_file)
        with in_pass(choose=lambda ids: ids[1:]):
            output = await EvaluationRun(config).run_and_evaluate()
    assert scores(output) == {"b": 0.0}


async def test_a_failed_rollout_is_listed_and_reaches_no_evaluator(tmp_path: Path):
    """A failed rollout has no score and does not lower the mean."""
    given = []

    async def fails(question):
        if question == "7":
            raise ConnectionError("refused")
        return question

    async def evaluate(eval_input):
        given.extend(item.id for item in eval_input.eval_input_items)
        items = [EvalOutputItem(id=item.id, score=1, reasoning=None) for item in eval_input.eval_input_items]
        return EvalOutput(average_score=1, eval_output_items=items)

    output = await evaluated(ScriptedWorkflow(tmp_path, fails, ROWS, evaluate))
    assert given == ["a"]
    assert scores(output) == {"a": 1.0}
    assert output.results_of("match").average_score == 1.0
    assert [(failure.item_id, str(failure)) for failure in output.failures] == [("b", "ConnectionError: refused")]
    assert output.workflow_interrupted
    assert ids(output) == ["a", "b"]


async def test_item_timeout_limits_each_rollout(tmp_path: Path):
    """`eval.general.item_timeout` ends a slow item; others are not affected."""

    async def slow(question):
        if question == "7":
            await asyncio.Event().wait()
        return question

    scripted = ScriptedWorkflow(tmp_path, slow, ROWS)
    scripted.general["item_timeout"] = 1.0
    output = await evaluated(scripted)
    assert [(failure.item_id, failure.kind) for failure in output.failures] == [("b", "timeout")]
    assert scores(output) == {"a": 1.0}


async def test_an_evaluator_that_hangs_is_stopped(tmp_path: Path):
    """An evaluator that scores all items in one call gets the limit times its rounds of concurrent items."""

    async def hangs(given):
        await asyncio.sleep(1000)

    scripted = ScriptedWorkflow(tmp_path, echo, ROWS, evaluate=hangs)
    scripted.general.update(scoring_timeout=0.1, max_concurrency=1)
    output = await evaluated(scripted)
    assert scores(output) == {"a": 1.0, "b": 0.0}
    late = output.results_of("scripted").eval_output_items
    why = "the evaluator did not end within 0.2 s: 2 answers, 1 at a time (eval.general.scoring_timeout: 0.1)"
    assert [(item.score, item.error, item.timed_out) for item in late] == [(None, why, True)] * 2


async def test_what_evaluators_ask_of_llms_is_counted(tmp_path: Path):
    """Their calls are no steps of a rollout; those of the workflow are not theirs."""

    async def evaluate(eval_input):
        for step in steps(call([user("good?")], "yes"), call([user("sure?")], "yes")):
            Context.get().intermediate_step_manager.push_intermediate_step(step.payload)
        return EvalOutput(average_score=None, eval_output_items=[])

    output = await evaluated(ScriptedWorkflow(tmp_path, echo, ROWS, evaluate))
    assert sum(used.calls for used in output.judge_usage.values()) == 2
    assert all(not used.llm_calls for used in output.usage_stats.usage_stats_items.values())


async def test_an_evaluator_that_raises_leaves_its_items_without_a_score(tmp_path: Path):
    """Each item gets the error; other evaluators are not affected."""

    async def evaluate(eval_input):
        raise LookupError("no such metric")

    output = await evaluated(ScriptedWorkflow(tmp_path, echo, ROWS, evaluate))
    assert scores(output, "scripted") == {"a": None, "b": None}
    assert output.results_of("scripted").eval_output_items[0].error == "LookupError: no such metric"
    assert scores(output) == {"a": 1.0, "b": 0.0}


@pytest.mark.parametrize("wrong", [None, [], 1.0])
async def test_an_evaluator_that_returns_no_output_is_an_error(tmp_path: Path, wrong):
    """Each of its items fails with the returned value's type; the command continues."""

    async def evaluate(eval_input):
        return wrong

    output = await evaluated(ScriptedWorkflow(tmp_path, echo, ROWS, evaluate))
    errors = {item.error for item in output.results_of("scripted").eval_output_items}
    assert errors == {f"the evaluator returned {wrong!r}, not an EvalOutput"}


async def test_result_json_path_finds_the_answer(tmp_path: Path):
    """Evaluators get the value at the path; an output without it fails with the path's name."""

    async def wrapped(question):
        return {"answer": {"text": question}} if question != "7" else {"error": "none"}

    output = await evaluated(ScriptedWorkflow(tmp_path, wrapped, ROWS), result_json_path="$.answer.text")
    assert scores(output) == {"a": 1.0}
    assert "result_json_path 'answer.text': nothing at this path" in output.failures[0].message.replace("$.", "")


async def test_dataset_replaces_the_configured_file_and_keeps_its_keys(tmp_path: Path):
    """The suffix sets the format; keys and filter of the YAML apply to the new file."""
    scripted = ScriptedWorkflow(tmp_path, echo, ROWS)
    scripted.general["dataset"] |= {
        "id_key": "nr",
        "structure": {"question_key": "q", "answer_key": "a"},
        "filter": {"denylist": {"field": {"nr": ["3"]}}},
    }
    (tmp_path / "other.csv").write_text("nr,q,a\n1,0042,0042\n2,7,07\n3,8,8\n")
    output = await evaluated(scripted, dataset=str(tmp_path / "other.csv"))
    assert scores(output) == {"1": 1.0, "2": 0.0}
    (tmp_path / "lines.JSONL").write_text('{"nr": "x", "q": "1", "a": "1"}\n')
    assert scores(await evaluated(scripted, dataset=str(tmp_path / "lines.JSONL"))) == {"x": 1.0}


async def test_reports_are_written(tmp_path: Path):
    """Reports have the rows with their answers, each evaluator's scores, the resolved config and the run's options."""
    scripted = ScriptedWorkflow(tmp_path, echo, ROWS)
    output = await evaluated(scripted, override=(("workflow.tone", "loud"),))
    rows = json.loads(output.workflow_output_file.read_text())
    assert [(row["id"], row["generated_answer"]) for row in rows] == [("a", "0042"), ("b", "7")]
    [file] = output.evaluator_output_files
    assert file == scripted.reports / "match_output.json"
    assert json.loads(file.read_text())["average_score"] == 0.5
    assert yaml.safe_load(output.config_effective_file.read_text())["workflow"]["tone"] == "loud"
    assert json.loads(output.config_metadata_file.read_text())["overridden"] == ["workflow.tone"]


async def test_job_id_separates_the_reports_of_jobs(tmp_path: Path):
    """Each job has its own folder; a job id cannot lead out of it."""
    scripted = ScriptedWorkflow(tmp_path, echo, ROWS)
    output = await evaluated(scripted, job_id="job-1")
    assert output.workflow_output_file == scripted.reports / "job-1" / "workflow_output.json"
    with pytest.raises(EvaluationError, match="cannot name"):
        await evaluated(scripted, job_id="../job")


async def test_the_workflow_is_built_once_for_all_passes_of_a_session(tmp_path: Path):
    """Passes inside `using_session` share the open workflow and its limit of concurrent rollouts."""
    running = most = 0

    async def busy(question):
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return question

    scripted = ScriptedWorkflow(tmp_path, busy, [{"question": str(n), "answer": ""} for n in range(6)])
    scripted.general["max_concurrency"] = 3
    path = scripted.config_file
    with scripted.registered():
        config = load_config(path)
        async with WorkflowBuilder.from_config(config) as builder:
            session = WorkflowSession(config, builder, config_file=path)
            with using_session(session):
                run = EvaluationRunConfig(config_file=path, write_output=False)
                await asyncio.gather(*(EvaluationRun(run).run_and_evaluate() for _ in range(4)))
    assert (scripted.built, scripted.closed) == (1, 1)
    assert most == 3


async def test_training_passes_have_new_seeds_and_validations_repeat(tmp_path: Path):
    """Generations explore; both validations play the same games."""
    seeds = []

    async def draws(question):
        seeds.append(Context.get().rollout_seed)
        return question

    scripted = ScriptedWorkflow(tmp_path, draws, ROWS[:1])
    path = scripted.config_file

    async def pass_seed():
        output = await EvaluationRun(EvaluationRunConfig(config_file=path, write_output=False)).run_and_evaluate()
        assert [facts.seed for facts in output.rollouts] == seeds[-1:]
        return seeds[-1]

    with scripted.registered():
        config = load_config(path)
        async with WorkflowBuilder.from_config(config) as builder:
            session = WorkflowSession(config, builder, config_file=path, training=True)
            with using_session(session):
                assert session.phase == "train"
                training = {await pass_seed(), await pass_seed()}
                with in_pass(held_out=True):
                    assert session.phase == "validation"
                    held_out = {await pass_seed(), await pass_seed()}
        alone = await pass_seed()
    assert len(training) == 2
    assert held_out == {alone}
    assert not training & held_out


async def test_cancellation_leaves_no_task_behind(tmp_path: Path):
    """Ctrl-C ends every rollout and closes the workflow."""
    started = asyncio.Event()

    async def endless(question):
        started.set()
        await asyncio.Event().wait()

    scripted = ScriptedWorkflow(tmp_path, endless, ROWS)
    before = asyncio.all_tasks()
    task = asyncio.create_task(evaluated(scripted))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
    assert scripted.closed == 1


async def test_a_dataset_format_of_a_plug_in(tmp_path: Path):
    """A loader of a plug-in is selected by its `_type` or by the suffix of that name."""

    class LinesConfig(DatasetBaseConfig, name="lines"):
        """One question per line."""

    async def lines(config, builder):
        yield DatasetLoaderInfo(
            config,
            lambda path: [{"question": q, "answer": q} for q in path.read_text().split()],
            "as upstream's signature allows",
        )

    scripted = ScriptedWorkflow(tmp_path, echo, ROWS)
    (tmp_path / "a.lines").write_text("one two")
    with scripted.registered():
        register_dataset_loader(config_type=LinesConfig)(lines)
        run = EvaluationRunConfig(config_file=scripted.config_file, dataset=str(tmp_path / "a.lines"))
        assert scores(await EvaluationRun(run).run_and_evaluate()) == {"1": 1.0, "2": 1.0}
        scripted.general["dataset"] = {"_type": "lines", "file_path": str(tmp_path / "a.lines")}
        run = EvaluationRunConfig(config_file=scripted.config_file)
        assert scores(await EvaluationRun(run).run_and_evaluate()) == {"1": 1.0, "2": 1.0}
        scripted.general["dataset"] = {"_type": "lines"}
        with pytest.raises(DatasetError, match="has no file_path"):
            await EvaluationRun(EvaluationRunConfig(config_file=scripted.config_file)).run_and_evaluate()


async def test_numbers_as_ids_reach_evaluators_and_reports(tmp_path: Path):
    """A number stays one for evaluators and in reports, also for a failed rollout; scores are matched by its text."""
    given = []

    async def fails_on_8(question: str):
        if question == "8":
            raise ConnectionError("refused")
        return question

    async def with_text_ids(eval_input):
        given.extend(item.id for item in eval_input.eval_input_items)
        items = [EvalOutputItem(id=str(item.id), score=1, reasoning=None) for item in eval_input.eval_input_items]
        return EvalOutput(average_score=1, eval_output_items=items)

    rows = [{"id": 1, "question": "7", "answer": "7"}, {"id": 2, "question": "8", "answer": "8"}]
    scripted = ScriptedWorkflow(tmp_path, fails_on_8, rows, with_text_ids)
    output = await evaluated(scripted)
    assert given == [1]
    assert scores(output) == scores(output, "scripted") == {1: 1.0}
    written = json.loads((scripted.reports / "workflow_output.json").read_text())
    assert [(row["id"], "error" in row) for row in written] == [(1, False), (2, True)]
    assert json.loads((scripted.reports / "match_output.json").read_text())["eval_output_items"][0]["id"] == 1


@pytest.mark.parametrize("broken_in", ["build", "load"])
async def test_a_loader_that_fails_is_named(tmp_path: Path, broken_in):
    """The error of a plug-in's loader has the loader, the file and the cause, instead of a traceback."""

    class BrokenConfig(DatasetBaseConfig, name="broken"):
        """Its loader raises."""

    def read(file_path):
        raise KeyError("the column is not there")

    async def broken(config, builder):
        if broken_in == "build":
            raise KeyError("the column is not there")
        yield DatasetLoaderInfo(config=config, load_fn=read)

    scripted = ScriptedWorkflow(tmp_path, echo, ROWS)
    scripted.general["dataset"] = {"_type": "broken", "file_path": "x.broken"}
    with scripted.registered():
        register_dataset_loader(config_type=BrokenConfig)(broken)
        with pytest.raises(
            DatasetError, match=r"x\.broken: the dataset loader '.*broken' failed: KeyError: 'the column"
        ):
            await EvaluationRun(EvaluationRunConfig(config_file=scripted.config_file)).run_and_evaluate()


OWN_FORMAT = """
def read(file_path, sep, twice=False):
    lines = file_path.read_text().splitlines() * (2 if twice else 1)
    return [dict(zip(("question", "answer"), line.split(sep))) for line in lines]

table = 5
"""


async def test_a_function_reads_the_dataset(tmp_path: Path, monkeypatch):
    """`_type: custom` calls the function with the file and its arguments; `--dataset` gives it another file."""
    (tmp_path / "own_format_of_a_test.py").write_text(OWN_FORMAT)
    (tmp_path / "a.txt").write_text("7=7\n8=9")
    (tmp_path / "b.json").write_text("8=9")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    scripted = ScriptedWorkflow(tmp_path, echo, ROWS)
    dataset = {"_type": "custom", "file_path": "a.txt", "kwargs": {"sep": "=", "twice": True}}
    scripted.general["dataset"] = {**dataset, "function": "own_format_of_a_test.read"}
    assert scores(await evaluated(scripted)) == {"1": 1.0, "2": 0.0, "3": 1.0, "4": 0.0}
    assert scores(await evaluated(scripted, dataset="b.json")) == {"1": 0.0, "2": 0.0}
    for function, seen in (("table", "has no function 'table'"), ("raed", "Did you mean 'read'"), ("", "no function")):
        scripted.general["dataset"] = {**dataset, "function": f"own_format_of_a_test.{function}"}
        with pytest.raises(NatError, match=seen):
            await evaluated(scripted)
    scripted.general["dataset"] = {**dataset, "function": "no_such_module.read"}
    with pytest.raises(NatError, match="No module named 'no_such_module'"):
        await evaluated(scripted)
