"""Programs as workflows: their input, their output, and their end."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fakes.openai_replies import Say
from fakes.openai_server import OpenAIServer
from fakes.processes import DEADLINE
from nat.builder.workflow import Workflow
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.context import CapturePolicy
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.intermediate_step import IntermediateStepType
from nat.errors import ConfigError
from nat.plugins.command import COMMAND_STEP, CommandConfig, CommandRewardConfig, command_reward
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.discovery import discover_components
from nat.rollout.rollout import run_rollout
from nat.secrets import REDACTED, known_secrets

ASK = """
import json, os, sys, urllib.request
body = {"model": "gpt-4o", "messages": [{"role": "user", "content": sys.stdin.read()}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(body).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
)
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


class Played:
    """An open `command` workflow."""

    def __init__(self, workflow: Workflow, server: OpenAIServer) -> None:
        self.workflow = workflow
        self.server = server

    async def __call__(self, value: Any = "hi", *, item: str = "1", deadline: float | None = None) -> Rollout:
        policy = CapturePolicy(logprobs=True, token_ids=True, seed=3)
        question = EvalInputItem(id=item, input_obj=value, expected_output_obj=None)
        return await run_rollout(self.workflow, question, seed=3, policy=policy, deadline=deadline)


@asynccontextmanager
async def command(
    program: list[str] | str, *, run_dir: Path | None = None, script: Any = None, **fields: Any
) -> AsyncIterator[Played]:
    discover_components()
    async with OpenAIServer(script) as server, WorkflowBuilder(run_dir=run_dir) as builder:
        await builder.add_llm("student", OpenAIModelConfig(model_name="tiny", base_url=server.base_url, max_retries=0))
        await builder.set_workflow(CommandConfig(llm="student", command=program, **fields))
        yield Played(await builder.build(), server)


async def answer(program: list[str] | str, value: Any = "hi", **fields: Any) -> str:
    """The output of a successful rollout."""
    async with command(program, **fields) as played:
        rollout = await played(value)
    assert rollout.error is None, rollout.error
    return rollout.output


async def failure(program: list[str] | str, **fields: Any) -> str:
    """The reason why a rollout failed."""
    async with command(program, **fields) as played:
        rollout = await played()
    assert rollout.error is not None
    return rollout.error.message


async def test_a_programs_call_belongs_to_its_rollout():
    """The program gets a URL and a key; its call is recorded with exact ids under the workflow's function."""
    async with command(python(ASK), script=lambda request: Say(f"re: {request.last_text}")) as played:
        rollout = await played("hello")
    assert (rollout.error, rollout.output) == (None, "re: hello")
    [end] = [step for step in rollout.steps if step.event_type is IntermediateStepType.LLM_END]
    assert end.metadata.llm_call.token_ids
    assert (end.metadata.llm_call.llm_name, end.function_ancestry.function_name) == ("student", "<workflow>")


@pytest.mark.parametrize(
    ("way", "code"),
    [
        ("stdin", "import sys; print(sys.stdin.read())"),
        ("argument", "import sys; print(sys.argv[-1])"),
        ("file", "print(open('input.txt').read())"),
    ],
)
async def test_the_input_is_passed_as_configured(way, code):
    """It is on stdin, the last argument, or in a file; other values than text come as JSON, surrogates as escapes."""
    assert await answer(python(code), "häßlich", input=way) == "häßlich"
    assert await answer(python(code), {"a": [1]}, input=way) == '{"a": [1]}'
    assert await answer(python(code), "a\ud83d", input=way) == "a\\ud83d"


async def test_a_text_command_runs_in_a_shell():
    """Pipes work, and the input as argument is `$1`, unchanged."""
    assert await answer('printf "%s" "$1" | tr a-z A-Z', "it's", input="argument") == "IT'S"


async def test_the_output_can_be_a_file():
    """The answer is read from a file anywhere below the working folder."""
    code = "import pathlib; print('noise'); pathlib.Path('out').mkdir(); pathlib.Path('out/a.txt').write_text('this')"
    assert await answer(python(code), output="file", output_file="out/a.txt") == "this"


async def test_each_rollout_starts_with_a_copy_of_the_folder(tmp_path):
    """Changes of one rollout are seen neither by other rollouts nor in the folder itself."""
    (tmp_path / "count").write_text("1")
    code = "import pathlib; p = pathlib.Path('count'); n = int(p.read_text()); p.write_text(str(n + 1)); print(n)"
    async with command(python(code), folder=tmp_path) as played:
        assert [(await played()).output for _ in range(2)] == ["1", "1"]
    assert (tmp_path / "count").read_text() == "1"


async def test_the_environment_holds_the_model_and_no_secrets(monkeypatch):
    """The program gets only PATH and language from the harness's environment; its home is not the user's."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    seen = eval(await answer(python(code), env={"MINE": "1"}))  # noqa: S307 - what the line above printed
    for known in ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PWD", "SHLVL", "_"):
        seen.pop(known, None)
    assert set(seen) == {
        "OPENAI_BASE_URL",
        "OPENAI_API_KEY",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_API_KEY",
        "HOME",
        "TMPDIR",
        "NO_PROXY",
        "no_proxy",
        "MINE",
    }
    assert seen["OPENAI_BASE_URL"] == seen["ANTHROPIC_BASE_URL"] + "/v1"
    assert seen["OPENAI_API_KEY"] == seen["ANTHROPIC_API_KEY"] != "sk-real"
    assert seen["HOME"] != os.environ.get("HOME")


async def test_a_bad_exit_code_fails_the_rollout():
    """The failure has the exit code and the end of stderr."""
    message = await failure(python("import sys; print('answer'); sys.exit('no model')"))
    assert "exit code 1" in message
    assert "no model" in message


async def test_a_killed_program_fails_the_rollout():
    """The failure names the signal."""
    assert "signal 9" in await failure("kill -9 $$")


async def test_the_time_limit_ends_the_process_group(tmp_path):
    """At the limit the program's children end, too, even those that ignore SIGTERM."""
    pids = tmp_path / "pids"
    code = f"trap '' TERM; sleep 600 & echo $! >> {pids}; echo $$ >> {pids}; wait; sleep 600"
    async with asyncio.timeout(DEADLINE):
        assert "within 3 s" in await failure(code, timeout=3)
    assert_gone(pids)


async def test_background_processes_end_with_the_program(tmp_path):
    """A background process neither outlives the rollout nor delays its end."""
    pids = tmp_path / "pids"
    async with asyncio.timeout(DEADLINE):
        assert await answer(f"sleep 600 & echo $! > {pids}; echo done") == "done"
    assert_gone(pids)


async def test_a_kept_folder_is_redacted(tmp_path):
    """The kept output contains no secret that the program got; the answer in memory is unchanged."""
    known_secrets.remember(["given-secret-1"])
    program = "echo $GIVEN; echo $GIVEN >&2"
    async with command(program, run_dir=tmp_path, keep_folder=True, env={"GIVEN": "given-secret-1"}) as played:
        rollout = await played()
    assert rollout.output == "given-secret-1"
    [kept] = (tmp_path / "folders").iterdir()
    assert (kept / "stdout").read_text() == (kept / "stderr").read_text() == f"{REDACTED}\n"


@pytest.mark.slow
async def test_a_deadline_of_the_evaluation_ends_the_program_too(tmp_path):
    """A cancelled rollout leaves no process and no folder."""
    pids, where = tmp_path / "pids", tmp_path / "where"
    async with command(f"pwd > {where}; echo $$ > {pids}; exec sleep 60") as played:
        rollout = await played(deadline=3.0)
    assert rollout.error.kind == "timeout"
    assert_gone(pids)
    assert_no_folder(where)


def assert_no_folder(named_in: Path) -> None:
    assert not Path(named_in.read_text().strip()).exists()


def assert_gone(pids: Path) -> None:
    for pid in pids.read_text().split():
        status = Path(f"/proc/{pid}/stat")
        assert not status.exists() or status.read_text().split()[2] == "Z", pid


async def test_the_reward_is_read_back():
    """`command_reward` gives the number in the reward file."""
    async with command("echo 0.25 > reward; echo fine", reward_file="reward") as played:
        rollout = await played()
    item = EvalInputItem(id="1", input_obj="hi", expected_output_obj=None, trajectory=rollout.steps)
    assert command_reward(item, CommandRewardConfig())[0] == 0.25


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("true", "wrote no file 'reward'"),
        ("echo high > reward", "holds 'high'"),
        ("echo nan > reward", "holds 'nan'"),
        ("ln -s /etc/hostname reward", "wrote no file 'reward'"),
        ("mkfifo reward", "wrote no file 'reward'"),
        ("mkdir reward", "wrote no file 'reward'"),
        ("truncate -s 1T reward", "larger than"),
    ],
)
async def test_an_invalid_reward_fails_the_rollout(code, wanted):
    """A missing or invalid reward is no number, and links out of the folder are not followed."""
    assert wanted in await failure(code, reward_file="reward")


@pytest.mark.parametrize(
    "code", ["mkdir out; mkfifo out/a.txt", "mkdir out; ln -s /etc/passwd out/a.txt", "echo x > out"]
)
async def test_output_is_read_from_regular_files_only(code):
    """A FIFO does not delay the run beyond its deadline, and no link out of the folder is followed."""
    assert "wrote no file 'out/a.txt'" in await failure(code, output="file", output_file="out/a.txt")


async def test_the_folder_is_kept_on_request(tmp_path):
    """The folder is in the run's folder under the rollout's name, and the program's step has its path."""
    program = "echo data > made; echo fine"
    async with command(program, run_dir=tmp_path, keep_folder=True) as played:
        rollout = await played(item="a/b")
    [kept] = (tmp_path / "folders").iterdir()
    assert kept.name.startswith("a_b#0-")
    assert sorted(path.name for path in kept.iterdir()) == ["stderr", "stdin", "stdout", "work"]
    assert (kept / "work" / "made").read_text() == "data\n"
    [step] = [step for step in rollout.steps if step.name == COMMAND_STEP]
    assert step.data.output == {"exit_code": 0, "reward": None, "folder": str(kept)}


async def test_a_missing_program_is_a_configuration_error(tmp_path):
    """The error comes before the first rollout and names the missing folder, too."""
    with pytest.raises(ConfigError, match=r"no program 'no-such-agent' on the PATH[\s\S]*is not a folder"):
        async with command(["no-such-agent"], folder=tmp_path / "missing"):
            pass


async def test_a_program_that_cannot_be_run_fails_the_rollout():
    """A program's path is looked up in the rollout's own folder."""
    assert "cannot be run" in await failure(["./agent"])


@pytest.mark.parametrize("name", ["input_file", "output_file", "reward_file"])
@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", ""])
def test_files_are_below_the_working_folder(name, path):
    """Paths of the configuration that lead out of the rollout's folder are refused."""
    with pytest.raises(ValidationError, match="below the working folder"):
        CommandConfig(llm="student", command=["x"], **{name: path})
