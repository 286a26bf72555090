"""Failures are reported where they happen: counted by cause, with an error, a remedy and a traceback."""

import asyncio
import json
import math
from contextlib import contextmanager

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.builder.evaluator import EvaluatorInfo
from nat.cli.main import exit_code
from nat.data_models.evaluator import EvalOutput, EvalOutputItem, EvaluatorBaseConfig
from nat.errors import EvaluationError
from nat.registry.decorators import register_evaluator


class ScoreConfig(EvaluatorBaseConfig, name="test_score"):
    pass


@contextmanager
def project_scored_by(tmp_path, server, score=None, **more):
    """A registered project; `score` is what its evaluator returns or raises."""

    async def build(config, builder):
        async def evaluate(eval_input):
            if isinstance(score, Exception):
                raise score
            items = [EvalOutputItem(id=item.id, score=score, reasoning={}) for item in eval_input.eval_input_items]
            return EvalOutput(average_score=None, eval_output_items=items)

        yield EvaluatorInfo(config=config, evaluate_fn=evaluate, description="returns a given value")

    project = FinetuningProject(tmp_path, server, **more)
    with project.registered():
        if more.get("agent") is None:
            register_evaluator(config_type=ScoreConfig)(build)
            project.config["eval"]["evaluators"]["match"] = {"_type": "test_score"}
        yield project


async def failed_validation(tmp_path, score) -> str:
    """The error of a run in which all held-out examples fail."""
    async with OpenAIServer(Coin()) as server:
        with project_scored_by(tmp_path, server, score) as project, pytest.raises(EvaluationError) as raised:
            await project.run(validation_dataset=str(project.held_out))
    return str(raised.value)


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (None, "the score is None"),
        (math.nan, "the score is nan, not a finite number"),
        ("good", "the score is 'good' (str), not a number"),
        (10**400, "the score is larger than 1e+15"),
        (KeyError("gold"), "KeyError: 'gold'"),
    ],
    ids=range(5),
)
async def test_each_kind_of_missing_score_has_its_own_error(tmp_path, score, words):
    """The error of a failed validation says what the evaluator returned or raised, with a remedy."""
    text = await failed_validation(tmp_path, score)
    assert "none of 8 held-out examples got a score: 8 x the evaluator gave no score" in text
    assert words in text
    assert "Fix the evaluator" in text


async def test_held_out_scores_without_a_call_are_warned_of(tmp_path, caplog):
    """They do not measure the trained model; a constant answer is right for all of these, as the verdict says."""

    async def silent(question, ask):
        return "right" if question.startswith("held out") else await ask(question)

    async with OpenAIServer(Coin()) as server:
        with project_scored_by(tmp_path, server, agent=silent) as project:
            rows = [{"id": str(i), "question": f"held out {i}", "answer": "right"} for i in range(8)]
            project.held_out.write_text(json.dumps(rows))
            result = await project.run(validation_dataset=str(project.held_out))
    assert caplog.text.count("No LLM call was seen in 8 held-out rollouts") == 1
    assert "The best constant answer, 'right', would be right for 100%." in result.comparison.sentence


async def a_third_fails(question, ask):
    if question in {"q1", "held-out 1"}:
        return {"town": "Rome"}["city"]
    return await ask(question)


async def run_output(tmp_path, capfd):
    """What the command prints to stdout and stderr, and the run's folder."""
    async with OpenAIServer(Coin()) as server:
        with project_scored_by(tmp_path, server, agent=a_third_fails) as project:
            arguments = ["--log-level", "warning", "finetune", "--config_file", str(project.given().config_file)]
            held_out = ("--validation_dataset", str(project.held_out))
            assert await asyncio.to_thread(exit_code, [*arguments, *held_out]) == 0
    out, err = capfd.readouterr()
    return out, err, (project.output_dir / "latest").resolve()


async def test_every_display_counts_the_failures(tmp_path, capfd):
    """Lines, log, summary and summary.json have the count, the error and the file with the traceback."""
    out, err, run_dir = await run_output(tmp_path, capfd)
    assert "epoch 1/2  reward 0.500  groups 3/3  rollouts 8 (2 failed)" in out
    assert "held-out before training: 0.000 on 7 examples (1 failed)" in out
    assert "6 of 32 rollouts" in out
    assert "6 x the workflow raised an error: KeyError: 'city'" in out
    assert f"{run_dir / 'failures.txt'}" in out
    assert "Epoch 1: 2 of 8 rollouts failed: 2 x the workflow raised an error: KeyError: 'city'" in err
    assert "Held-out before training: 1 of 8 rollouts failed" in err
    summary = json.loads((run_dir / "summary.json").read_text())
    raised = {"cause": "the workflow raised an error", "count": 6, "error": "KeyError: 'city'", "same_error": True}
    assert summary["failures"] == [raised]
    assert (summary["rollouts"], summary["failures_file"]) == (32, "failures.txt")
    tracebacks = (run_dir / "failures.txt").read_text()
    assert tracebacks.count("Traceback (most recent call last)") == 1
    assert 'return {"town": "Rome"}["city"]' in tracebacks
    assert "held-out before training, example 001, generation 0" in tracebacks
