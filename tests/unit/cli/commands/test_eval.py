"""`nat eval` with a workflow that calls an OpenAI-compatible server."""

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner, Result

from fakes.openai_server import OpenAIServer, Refuse, Say
from fakes.scripted_workflow import ScriptedWorkflow
from nat.builder.builder import Builder
from nat.cli.commands.eval import eval_command
from nat.data_models.evaluator import EvalOutput
from nat.errors import EvaluationError, NatError

ROWS = [{"id": "a", "question": "one", "answer": "one!"}, {"id": "b", "question": "two", "answer": "2"}]


async def asks_the_model(question: str):
    client = await Builder.current().get_llm("model", "openai")
    reply = await client.chat.completions.create(
        model=client.model_name, messages=[{"role": "user", "content": question}]
    )
    return reply.choices[0].message.content


async def echo(question: str):
    return question


def scripted_with_llm(folder: Path, server: OpenAIServer) -> ScriptedWorkflow:
    scripted = ScriptedWorkflow(folder, asks_the_model, ROWS)
    scripted.config["llms"] = {
        "model": {"_type": "openai", "model_name": "m", "base_url": server.base_url, "api_key": "k", "max_retries": 0}
    }
    return scripted


async def invoked(scripted: ScriptedWorkflow, *arguments: str) -> Result:
    """Run the command in a thread, because it starts its own event loop."""
    with scripted.registered():
        command = ["--config_file", str(scripted.config_file), *arguments]
        return await asyncio.to_thread(CliRunner().invoke, eval_command, command)


async def test_it_prints_the_summary(tmp_path: Path):
    """The summary has status, runtime, and each evaluator's average, number of scores and file."""
    async with OpenAIServer(lambda request: Say(request.last_text + "!")) as server:
        result = await invoked(scripted_with_llm(tmp_path, server))
        bodies = server.bodies
    assert result.exit_code == 0, result.exception
    assert "=== EVALUATION SUMMARY ===" in result.stdout
    assert "Workflow Status: COMPLETED" in result.stdout
    assert "match     | 0.5000    | 2/2    | " in result.stdout
    assert str(tmp_path / "reports" / "match_output.json") in result.stdout
    assert all("logprobs" not in body and "return_token_ids" not in body and "seed" not in body for body in bodies)


async def test_json_is_one_object(tmp_path: Path):
    """The output is one JSON object with the same facts and nothing else."""
    async with OpenAIServer(lambda request: Say(request.last_text + "!")) as server:
        result = await invoked(scripted_with_llm(tmp_path, server), "--json")
    record = json.loads(result.stdout)
    assert (record["rollouts"], record["failed"], record["failures"]) == (2, 0, [])
    [evaluator] = record["evaluators"]
    assert (evaluator["name"], evaluator["average_score"], evaluator["scored"]) == ("match", 0.5, 2)
    assert evaluator["output_file"] == str(tmp_path / "reports" / "match_output.json")


async def test_the_command_fails_if_all_rollouts_failed(tmp_path: Path):
    """The exit code is 1, with the numbers and the most frequent error; the summary is still printed."""
    async with OpenAIServer(lambda _request: Refuse(501, "no GPU")) as server:
        result = await invoked(scripted_with_llm(tmp_path, server))
    assert result.exit_code == 1
    assert isinstance(result.exception, EvaluationError)
    assert "all 2 rollouts failed: 2 x the workflow raised an error: InternalServerError" in str(result.exception)
    assert "no GPU" in str(result.exception)
    assert "2 OF 2 ROLLOUTS FAILED" in result.stdout


async def test_the_command_succeeds_if_some_rollouts_failed(tmp_path: Path):
    """Other scores count; the summary lists the failures apart from the average."""
    replies = {"one": Say("one!"), "two": Refuse(400, "bad")}
    async with OpenAIServer(lambda request: replies[request.last_text]) as server:
        result = await invoked(scripted_with_llm(tmp_path, server))
    assert result.exit_code == 0
    assert "1 OF 2 ROLLOUTS FAILED" in result.stdout
    assert "Failed: 1 x the workflow raised an error: BadRequestError" in result.stdout
    tracebacks = tmp_path / "reports" / "failures.txt"
    assert f"Tracebacks: {tracebacks}" in result.stdout
    assert tracebacks.read_text().count("Traceback (most recent call last)") >= 1
    assert "match     | 1.0000    | 1/2    | " in result.stdout


async def test_the_command_fails_if_an_evaluator_scored_nothing(tmp_path: Path):
    """Its error is shown; a missing average is not a result."""

    async def evaluate(eval_input) -> EvalOutput:
        raise LookupError("no such metric")

    result = await invoked(ScriptedWorkflow(tmp_path, echo, ROWS, evaluate))
    assert result.exit_code == 1
    assert isinstance(result.exception, NatError)
    assert "'scripted' scored none of 2 answers" in str(result.exception)
    assert "Failed: 2 x the evaluator gave no score (scripted): LookupError: no such metric" in result.stdout
    assert "in evaluate\n    raise LookupError" in (tmp_path / "reports" / "failures.txt").read_text()


async def test_options_reach_the_evaluation(tmp_path: Path):
    """`--dataset`, `--result_json_path`, `--reps` and `-o` each change the evaluation."""

    async def wrapped(question):
        return {"answer": question}

    scripted = ScriptedWorkflow(tmp_path, wrapped, ROWS)
    rows = scripted.write_rows("other.json", [{"id": "x", "question": "0042", "answer": "0042"}])
    result = await invoked(
        scripted,
        *("--dataset", str(rows)),
        *("--result_json_path", "$.answer"),
        *("--reps", "3"),
        *("-o", "workflow.tone", "loud"),
        "--json",
    )
    record = json.loads(result.stdout)
    assert record["rollouts"] == 3
    assert record["evaluators"][0]["average_score"] == 1.0
    assert scripted.tones == ["loud"]
