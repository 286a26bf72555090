"""Callbacks of an evaluation, registered by a plug-in and named in the YAML."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from fakes.scripted_workflow import ScriptedWorkflow
from nat.config.load import load_config
from nat.eval.eval_callbacks import EvalResult
from nat.eval.evaluate import EvaluationRun, EvaluationRunConfig
from nat.plugin_api import TelemetryExporterBaseConfig, register_eval_callback

ROWS = [{"id": "a", "question": "0042", "answer": "0042"}, {"id": "b", "question": "bad", "answer": "8"}]


class Notebook:
    """Writes down what it is told."""

    def __init__(self, *, fails_in: str = "") -> None:
        self.told: list[tuple[str, object]] = []
        self._fails_in = fails_in

    def _note(self, what: str, value: object) -> None:
        self.told.append((what, value))
        if what == self._fails_in:
            raise RuntimeError("a callback's own failure")

    def on_dataset_loaded(self, *, dataset_name, items):
        self._note("dataset", (dataset_name, [item.id for item in items]))

    def on_eval_started(self, *, workflow_alias, eval_input, config, job_id=None):
        self._note("started", (len(eval_input.eval_input_items), job_id))

    @contextmanager
    def evaluation_context(self):
        self._note("enter", None)
        yield
        self._note("leave", None)

    def on_prediction(self, *, item, output):
        self._note("prediction", (item.id, output))

    async def a_on_usage_stats(self, *, item, usage_stats_item):
        self._note("usage", (item.id, usage_stats_item.runtime >= 0))

    async def a_on_evaluator_score(self, *, eval_output, evaluator_name):
        self._note("score", (evaluator_name, eval_output.average_score))

    async def a_on_export_flush(self):
        self._note("flush", None)

    def on_eval_summary(self, *, usage_stats, evaluation_results, profiler_results):
        self._note("summary", [name for name, _ in evaluation_results])

    def on_eval_complete(self, result):
        self._note("complete", result)

    def named(self, what: str) -> list[object]:
        return [value for name, value in self.told if name == what]


async def echo(question: str):
    if question == "bad":
        raise ConnectionError("refused")
    return question


class NotebookConfig(TelemetryExporterBaseConfig, name="notebook"):
    project: str = "default"


def with_tracing(scripted: ScriptedWorkflow, tracing: dict) -> ScriptedWorkflow:
    scripted.config["general"] = {"telemetry": {"tracing": tracing}}
    return scripted


async def evaluated(tmp_path: Path, notebook: Notebook, tracing: dict, **options):
    scripted = with_tracing(ScriptedWorkflow(tmp_path, echo, ROWS), tracing)
    built = []
    with scripted.registered():

        @register_eval_callback(config_type=NotebookConfig)
        def build(config, **_):
            built.append(config.project)
            return notebook

        config = EvaluationRunConfig(config_file=scripted.config_file, **options)
        await EvaluationRun(config).run_and_evaluate(job_id="job")
    return built


async def test_a_callback_is_told_all_in_order(tmp_path: Path):
    """A callback that the YAML names gets dataset, answers, scores and result; a failed rollout is no answer."""
    notebook = Notebook()
    built = await evaluated(tmp_path, notebook, {"mine": {"_type": "notebook", "project": "p"}})
    assert built == ["p"]
    order = ["dataset", "started", "enter", "prediction", "usage", "score", "leave", "flush", "summary", "complete"]
    assert [name for name, _ in notebook.told] == order
    assert notebook.named("prediction") == [("a", "0042")]
    assert notebook.named("score") == [("match", 1.0)]
    [result] = notebook.named("complete")
    assert isinstance(result, EvalResult)
    assert result.metric_scores == {"match": 1.0}
    assert [(item.item_id, item.scores) for item in result.items] == [("a", {"match": 1.0}), ("b", {})]
    assert result.output_dir.name == "job"
    assert "0042" in result.workflow_output_json


@pytest.mark.parametrize("hook", ["dataset", "enter", "prediction", "usage", "score", "leave", "complete"])
async def test_a_callback_that_fails_affects_nothing_else(tmp_path: Path, hook, caplog):
    """Its error is logged, and the evaluation and its other calls go on."""
    notebook = Notebook(fails_in=hook)
    await evaluated(tmp_path, notebook, {"mine": {"_type": "notebook"}})
    assert [name for name, _ in notebook.told][-1] == "complete"
    assert "of the callback Notebook failed" in caplog.text


async def test_passes_without_reports_call_no_callback(tmp_path: Path):
    """Only an evaluation that writes reports calls them, so a training run's rollouts do not."""
    notebook = Notebook()
    await evaluated(tmp_path, notebook, {"mine": {"_type": "notebook"}}, write_output=False)
    assert notebook.told == []


def test_other_exporters_have_no_effect(tmp_path: Path, caplog):
    """An exporter without a callback is dropped with a warning that names it."""
    scripted = with_tracing(
        ScriptedWorkflow(tmp_path, echo, ROWS), {"mine": {"_type": "notebook"}, "theirs": {"_type": "langsmith"}}
    )
    with scripted.registered():
        register_eval_callback(config_type=NotebookConfig)(lambda _config: Notebook())
        config = load_config(scripted.config_file)
    assert list(config.general.telemetry.tracing) == ["mine"]
    assert "general.telemetry.tracing.theirs has no effect here" in caplog.text
