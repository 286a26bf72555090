"""`nat probe` from its arguments to its page; the model is a scripted server."""

import asyncio
import json
import re
import string

import pytest

from fakes.finetuning_project import FinetuningProject
from fakes.openai_server import OpenAIServer, Say
from fakes.processes import refused_port
from fakes.runs_on_disk import EVIL
from fakes.served_workflow import serving_file, url_of
from nat.cli.main import exit_code
from nat.errors import BackendUnreachable
from nat.finetuning.interfaces.trainer_adapter import Recipe

PAGE = """\
Probe of {config}: 4 of 4 examples, 32 rollouts, nothing trained

LLM        student
Time       {time}
           {spent}
Tokens     {tokens}
Calls      1.0 per rollout
Reward     match: mean 0.500, from 0 to 1
Groups     4 of 4 have a difference in reward (100%, 95% interval 40% to 100%)
Evaluator  no noise: each of 32 outputs got the same score 3 times

Example  Rollouts  Reward  Spread
000      8         0.50    0.50
001      8         0.50    0.50
002      8         0.50    0.50
003      8         0.50    0.50

Generations  Groups with a difference  Signal per rollout
4            86%                       0.65
8            99%                       0.86                advised
16           100%                      0.94
32           100%                      0.97

Answer    Example  Input → output
Reward 0  000      q0 → wrong
Reward 1  000      q0 → right

Training on these examples has a signal: 4 of 4 groups have a difference in reward.
Use num_generations: 8 (the YAML has 2).

Proposal  llms.student.max_tokens is not set: the longest answer of 32 rollouts in the probe of {day} took 6 tokens; 12 leave as much room again
          paste  llms: {{student: {{max_tokens: 12}}}}
"""  # noqa: E501 - a page has such lines


async def nat(project: FinetuningProject, *arguments: str) -> int:
    """Run the command in a thread, so that the server in this loop can answer it."""
    path = project.given().config_file
    return await asyncio.to_thread(exit_code, ["--log-level", "error", "probe", "--config_file", str(path), *arguments])


async def report(project: FinetuningProject, capsys, *arguments: str) -> dict:
    assert await nat(project, "--json", *arguments) == 0
    return json.loads(capsys.readouterr().out)


async def failure(project: FinetuningProject, capsys, *arguments: str) -> str:
    """The text of the error, with nothing before it on the standard output."""
    assert await nat(project, *arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "\n  → " in err, "an error says what to do"
    return err


async def test_the_page(project, capsys):
    """The page has the facts, the examples, the advice, the verdict and proposals; stderr has what is known before."""
    assert await nat(project) == 0
    shown, meanwhile = capsys.readouterr()
    groups = "4 of 4 groups have a difference in reward (95% interval 40% to 100%), mean reward 0.5"
    assert re.search(rf"^after 4 examples \(.* s\): {re.escape(groups)}$", meanwhile, re.MULTILINE)
    lines = dict(line.split("  ", 1) for line in shown.splitlines() if line.startswith(("Time ", "Tokens ")))
    known = {name.lower(): text.strip() for name, text in lines.items()}
    known["spent"] = shown.partition("Time ")[2].splitlines()[1].strip()
    known["day"] = shown.partition("in the probe of ")[2].partition(" took")[0]
    assert known["spent"].endswith("with loading and second scores; ended because all were played")
    assert shown == PAGE.format(config=project.folder / "config.yml", **known)
    assert "0% of the rollouts hit a token limit" in known["tokens"]


async def test_the_page_without_a_signal(project, capsys):
    """The whole page is printed; then the error repeats the first finding."""

    async def silent(question, ask):
        return "right"

    project.agent = silent
    assert await nat(project) == 1
    out, err = capsys.readouterr()
    assert "Left out  16 x no LLM call came from a target function" in out
    assert "Generations" not in out
    assert out.rstrip().splitlines()[-1].startswith("  → Take every client from builder.get_llm")
    assert "Error: Training on these examples has no signal: rollouts are lost." in err


async def test_an_answer_cannot_control_the_terminal(project, capsys):
    """The page escapes what the model wrote; the JSON has it in ASCII."""

    async def hostile(question, ask):
        return f"{await ask(question)}{EVIL}"

    project.agent = hostile
    assert await nat(project) == 1
    page = capsys.readouterr().out
    assert "\\x1b[2J" in page
    assert await nat(project, "--json") == 1
    shown = page + capsys.readouterr().out
    assert not set(EVIL) & set(shown) - set(string.printable)
    assert "\x1b" not in shown


async def test_the_page_of_many_examples(project, capsys):
    """The table has the hardest and the easiest examples."""
    project.dataset = project.write_rows("train.json", 20)
    project.config["eval"]["general"]["max_concurrency"] = 16
    assert await nat(project, "--generations", "2") == 0
    table = capsys.readouterr().out.partition("Example ")[2].partition("\n\n")[0]
    assert "(12 between)" in table
    assert len(table.splitlines()) == 10


async def test_options_have_an_effect(project, capsys):
    """The numbers of examples, of rollouts and of scores are those of the options."""
    found = await report(project, capsys, "--examples", "3", "--generations", "6", "--rescores", "4")
    measured = found["measured"]
    assert (len(measured["examples"]), measured["num_examples"], measured["num_rollouts"]) == (3, 4, 18)
    assert (measured["noise"]["outputs"], measured["noise"]["scores"]) == (18, 5)
    assert measured["configured_generations"] == 2
    found = await report(project, capsys, "--rescores", "0", "-o", "trajectory_builders.builder.num_generations", "4")
    assert found["measured"]["noise"] is None
    assert found["measured"]["configured_generations"] == 4


async def test_the_examples_are_drawn_by_the_seed(project, capsys):
    """The same seed chooses the same examples, another one others, in the order of the dataset."""

    async def chosen(*arguments: str) -> list[str]:
        found = await report(project, capsys, "--examples", "4", *arguments)
        return sorted(example["id"] for example in found["measured"]["examples"])

    project.dataset = project.write_rows("train.json", 40)
    first = await chosen()
    assert len(set(first)) == 4
    assert await chosen() == first
    assert await chosen("-o", "finetuning.seed", "1") != first


async def test_dataset_has_an_effect(project, capsys):
    """`--dataset` replaces the configured file."""
    found = await report(project, capsys, "--dataset", str(project.write_rows("two.json", 2)))
    assert found["measured"]["num_examples"] == 2


async def test_reward_has_an_effect(project, capsys):
    """`--reward` names another evaluator than the configuration."""
    project.config["eval"]["evaluators"]["other"] = {"_type": "exact_match"}
    assert (await report(project, capsys))["measured"]["reward"] == "match"
    assert (await report(project, capsys, "--reward", "other"))["measured"]["reward"] == "other"


async def test_result_json_path_has_an_effect(project, capsys):
    """The answer is a part of the workflow's output."""

    async def wrapped(question, ask):
        return json.dumps({"answer": await ask(question)})

    project.agent = wrapped
    found = await report(project, capsys, "--result_json_path", "$.answer")
    assert found["measured"]["answers"][0]["output"] == "wrong"


async def test_the_output_file_has_the_rollouts_and_no_secrets(project, capsys, tmp_path):
    """The file has the report and each rollout's conversation, score and error; keys are left out."""
    key = project.config["llms"]["student"]["api_key"] = "sk-THIS-is-a-Secret-Key-0123456789"

    async def leaky(question, ask):
        if question == "q1":
            raise ValueError(f"not with {key}")
        return await ask(question)

    project.agent = leaky
    file = tmp_path / "deep" / "probe.json"
    found = await report(project, capsys, "--output", str(file))
    text = file.read_text()
    record = json.loads(text)
    assert record["report"] == found
    assert len(record["rollouts"]) == 32
    first = next(each for each in record["rollouts"] if each["example_id"] == "000")
    assert first["messages"][0] == {"role": "user", "content": "q0"}
    assert "not with" in text
    assert key not in text
    assert {each["example_id"] for each in record["rollouts"] if "ValueError" in each.get("traceback", "")} == {"001"}


async def test_a_remedy_names_what_a_probe_writes(project, capsys):
    """It has no run's folder, so no failures.txt."""

    async def broken(question, ask):
        raise ValueError("no")

    project.agent = broken
    assert await nat(project) == 1
    shown = capsys.readouterr()
    assert "the traceback is in the file of `nat probe --output FILE`, and `nat run` plays one input" in shown.out
    assert "failures.txt" not in shown.out + shown.err


@pytest.mark.parametrize("minutes", ["nan", "-1", "three"])
async def test_minutes_are_a_number_of_at_least_zero(project, capsys, minutes):
    """What is none is refused before anything is loaded."""
    assert await nat(project, "--minutes", minutes) == 2
    assert "Invalid value for '--minutes': " in capsys.readouterr().err


async def test_a_configuration_without_finetuning(project, capsys):
    """A workflow, a dataset and an evaluator suffice; nothing of the training is opened."""
    for section in ("trajectory_builders", "trainer_adapters", "trainers", "finetuning"):
        del project.config[section]
    found = await report(project, capsys)
    assert (found["signal"], found["measured"]["reward"]) == ("signal", "match")
    assert found["measured"]["configured_generations"] is None


async def test_a_workflow_that_runs_elsewhere(project, capsys):
    """With `--endpoint` the served workflow plays the rollouts, and the numbers are the same."""
    here = await report(project, capsys)
    async with serving_file(project.given().config_file) as client:
        there = await report(project, capsys, "--endpoint", url_of(client), "--endpoint_timeout", "30")
    for measured in (here["measured"], there["measured"]):
        assert (measured["num_rollouts"], measured["left_out"]) == (32, {})
    assert there["signal"] == "signal"


async def test_an_algorithm_that_compares_across_groups(project, capsys):
    """If the algorithm compares rewards of the whole batch, groups of equal rewards are no lack of signal."""
    answers = {"q0": "right", "q1": "wrong", "q2": "right", "q3": "wrong"}

    async def fixed(question, ask):
        await ask(question)
        return answers[question]

    project.agent, project.adapter.recipe = fixed, Recipe(compares="batch")
    assert (await report(project, capsys))["signal"] == "signal"
    project.adapter.recipe = Recipe()
    assert await nat(project, "--json") == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["cause"] == "output_alone"


async def test_no_dataset(project, capsys):
    """Without a dataset the error names the key and the option."""
    del project.config["eval"]["general"]["dataset"]
    assert "there is no dataset" in await failure(project, capsys)


async def test_a_dataset_that_is_not_there(project, capsys):
    """The error names the file."""
    assert "nowhere.json" in await failure(project, capsys, "--dataset", "nowhere.json")


async def test_no_evaluator(project, capsys):
    """Without an evaluator there is no reward."""
    del project.config["finetuning"]
    project.config["eval"]["evaluators"] = {}
    text = await failure(project, capsys)
    assert "finetuning.reward_function: not set, so no rollout has a reward. Evaluators: none" in text


async def test_several_evaluators(project, capsys):
    """The error names them; none is chosen silently."""
    del project.config["finetuning"]
    project.config["eval"]["evaluators"]["other"] = {"_type": "exact_match"}
    text = await failure(project, capsys)
    assert "Evaluators: match, other" in text
    assert "--reward" in text


async def test_an_unknown_reward(project, capsys):
    """A mistyped name gets a suggestion."""
    assert await nat(project, "--reward", "mtach") == 1
    assert "'mtach' is not under eval.evaluators. Did you mean 'match'?" in capsys.readouterr().err


async def test_a_server_that_is_not_there(project, capsys):
    """No rollout is played if nothing listens at the model's address."""
    with refused_port() as port:
        address = f"http://127.0.0.1:{port}/v1"
        project.config["llms"]["student"] |= {"_type": "openai", "base_url": address}
        text = await failure(project, capsys)
    assert "student" in text
    assert f"no server answers at {address.removesuffix('/v1')}" in text


async def test_a_server_that_dies(project, capsys):
    """If the harness's own server is dead after failed rollouts, that is the error, not the failures."""

    async def broken(question, ask):
        raise ConnectionError

    project.agent = broken
    project.server_error = BackendUnreachable("the backend has ended with code 9", hint="see its log")
    assert "the backend has ended with code 9" in await failure(project, capsys)


async def test_a_model_that_is_not_there(project, capsys, tmp_path):
    """A `local` model whose folder is missing is an error before anything starts."""
    project.config["llms"]["student"] = {"_type": "local", "model": str(tmp_path / "nowhere")}
    text = await failure(project, capsys)
    assert "llms.student" in text
    assert "nowhere" in text


async def test_an_unhealthy_trainer(project, capsys):
    """A backend that cannot take jobs is an error, as in a run."""
    project.adapter.healthy = False
    assert "unhealthy training backend" in await failure(project, capsys)


async def test_a_model_without_a_distribution(project, capsys):
    """Greedy sampling cannot be trained on; the error says so before the first rollout, as in a run."""
    project.config["llms"]["student"]["temperature"] = 0
    project.config["finetuning"]["target_model"] = "student"
    assert await nat(project) == 1
    assert "answers sampled with temperature=0 cannot be trained on" in capsys.readouterr().err


async def test_truncated_answers_are_noted_by_example(project, capsys):
    """The table says how many rollouts of an example hit a limit."""
    async with OpenAIServer(lambda _request: Say("wrong", finish_reason="length")) as server:
        project.config["llms"]["student"]["base_url"] = server.base_url
        assert await nat(project) == 1
    assert "8 hit a token limit" in capsys.readouterr().out
