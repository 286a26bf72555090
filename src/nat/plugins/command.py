"""The workflow `command`: a program runs once per example, in a new folder, with the gateway as its model server.

The folder of a rollout has `work`, the program's working folder; `home`, so that the user's settings have no effect;
`tmp`; and the files `stdin`, `stdout` and `stderr`. The evaluator `command_reward` reads the number that it wrote.
"""

import asyncio
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, field_validator

from nat.builder.builder import Builder, EvalBuilder
from nat.builder.context import Context
from nat.builder.function_info import FunctionInfo
from nat.capture.context import deadline
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvalInputItem, EvaluatorBaseConfig
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType, StreamEventData
from nat.data_models.llm import USUAL_CONCURRENCY
from nat.errors import CommandFailed, ConfigError, EvaluationError
from nat.files import UserPath, UserPathText
from nat.gateway import WRAPPER_TYPE, check_installed
from nat.plugins.evaluators.scores import Score, register_score
from nat.registry.decorators import register_function
from nat.secrets import excerpt, redact
from nat.supervisor import SUPERVISED
from nat.wire.json import text_or_json, without_surrogates

if TYPE_CHECKING:
    from nat.gateway.access import Keyring
    from nat.gateway.upstream import Upstream

KEPT_FOLDERS = "folders"
MAX_READ_BYTES = 32 * 2**20
"""Limit for one file of a program."""
_TAIL_BYTES = 2000
_LONGEST_NAME = 200
_SUPERVISOR_SECONDS = 20.0
"""Longer than the supervisor ever takes."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT")
"""Of the harness's environment, which has keys that an agent must not see."""
COMMAND_STEP = "command"
"""Name of the step that records a run of the program."""
_MODEL_SERVER = {"OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"}


class CommandConfig(FunctionBaseConfig, name="command"):
    """Runs an unmodified program for each example; URL and key of the model are in its environment."""

    most_at_a_time = USUAL_CONCURRENCY
    llm: LLMRef
    """The model that answers, for every model name in the program's requests."""
    command: list[UserPathText] | UserPathText = Field(min_length=1)
    """The program and its arguments, or one command line for the shell."""
    folder: UserPath | None = None
    """A folder to copy for each example, as the program's working folder; default: an empty one."""
    input: Literal["stdin", "argument", "file"] = "stdin"
    """How the program gets its input; `argument` appends it as the last one (`$1` for the shell)."""
    input_file: str = "input.txt"
    """Path of the input with `input: file`, in the working folder."""
    output: Literal["stdout", "file"] = "stdout"
    """Where the program writes its answer."""
    output_file: str = "output.txt"
    """Path of the answer with `output: file`, in the working folder."""
    reward_file: str | None = None
    """Path of a file with one number that the program writes, for the evaluator `command_reward`."""
    env: dict[str, str] = Field(default_factory=dict)
    """Further environment variables. By default the program gets only PATH, the locale, and the URL and key of the
    model."""
    timeout: float = Field(default=300.0, gt=0)
    """Seconds until the program and its child processes are ended, and the rollout fails."""
    keep_folder: bool = False
    """Keep the working folder, stdout and stderr with the run's other files."""

    @field_validator("input_file", "output_file", "reward_file")
    @classmethod
    def _stays_inside(cls, path: str | None) -> str | None:
        if path is not None and (path in ("", ".") or path.startswith("/") or ".." in PurePosixPath(path).parts):
            raise ValueError(f"{path!r} has to be a path below the working folder")
        return path

    @field_validator("env")
    @classmethod
    def _keeps_model_variables(cls, env: dict[str, str]) -> dict[str, str]:
        if reserved := sorted(_MODEL_SERVER & env.keys()):
            raise ValueError(
                f"{', '.join(reserved)}: reserved, because each rollout gets its own URL and key of the model"
            )
        return env


class CommandRecord(BaseModel):
    """The output of the step that records a run."""

    exit_code: int | None
    """None if the program was ended after its time limit."""
    reward: float | None = None
    """The number in the reward file."""
    folder: str | None = None
    """Path of the kept folder."""


class MissingOutput(ValueError):
    """A file that the program should have written is missing or invalid."""


class CommandWorkflow:
    """A program with a gateway as its model server."""

    def __init__(
        self, config: CommandConfig, upstream: "Upstream", keyring: "Keyring", *, url: str, kept_in: Path | None
    ) -> None:
        """`url` is the gateway's, without `/v1`; `kept_in` is where folders are kept, if `keep_folder` is set."""
        self._config = config
        self._upstreams = {str(config.llm): upstream}
        self._keyring = keyring
        self._url = url
        self._kept_in = kept_in if config.keep_folder else None

    async def run(self, value: Any) -> str:
        """The program's answer to an input; call it inside the rollout."""
        name = Context.get().workflow_run_id or COMMAND_STEP
        root, end = await asyncio.to_thread(_new_folder, self._config, self._kept_in, name)
        exit_code = reward = None
        try:
            exit_code = await self._play(without_surrogates(text_or_json(value)), root)
            answer = self._answer(exit_code, root)
            if self._config.reward_file is not None:
                reward = _number(root / "work", self._config.reward_file)
        except MissingOutput as error:
            raise CommandFailed(f"{error}; {_stderr_text(root)}") from error
        finally:
            kept = None if self._kept_in is None else str(root)
            record = CommandRecord(exit_code=exit_code, reward=reward, folder=kept)
            payload = IntermediateStepPayload(
                event_type=IntermediateStepType.CUSTOM_END,
                name=COMMAND_STEP,
                data=StreamEventData(output=record.model_dump(mode="json")),
            )
            Context.get().intermediate_step_manager.push_intermediate_step(payload)
            await asyncio.to_thread(end)
        return answer

    async def _play(self, text: str, root: Path) -> int:
        from nat.gateway.access import RolloutAccess

        config = self._config
        (root / "stdin").write_text(text if config.input == "stdin" else "", encoding="utf-8")
        if config.input == "file":
            file = root / "work" / config.input_file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        command = config.command
        arguments = ["/bin/sh", "-c", command, "sh"] if isinstance(command, str) else list(command)
        arguments += [text] if config.input == "argument" else []
        try:
            # The key opens inside the deadline, which the calls with it move.
            async with deadline(config.timeout), self._keyring.opened(RolloutAccess(self._upstreams)) as key:
                return await _run(arguments, self._environment(key, root), root)
        except TimeoutError as error:
            raise CommandFailed(
                f"the program did not end within {config.timeout:g} s; {_stderr_text(root)}",
                hint="give it longer with workflow.timeout",
            ) from error
        except OSError as error:
            raise CommandFailed(f"{arguments[0]!r} cannot be run: {error.strerror or error}") from error

    def _environment(self, key: str, root: Path) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),  # `env` may name a proxy
            "HOME": str(root / "home"),
            "TMPDIR": str(root / "tmp"),
            **self._config.env,
            "OPENAI_BASE_URL": f"{self._url}/v1",
            "OPENAI_API_KEY": key,
            "ANTHROPIC_BASE_URL": self._url,
            "ANTHROPIC_API_KEY": key,
        }

    def _answer(self, exit_code: int, root: Path) -> str:
        if exit_code != 0:
            how = f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code}"
            raise CommandFailed(f"the program ended with {how}; {_stderr_text(root)}")
        in_file = self._config.output == "file"
        answer = _text(root / "work", self._config.output_file) if in_file else _text(root, "stdout")
        return answer.rstrip("\r\n")


async def _run(arguments: Sequence[str], environment: dict[str, str], root: Path) -> int:
    """Run the program in its folder and return its exit code; a cancellation ends its process group.

    Raises:
        OSError: it cannot be started.

    """
    with (root / "stderr").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *SUPERVISED,
            str(root / "stdin"),
            str(root / "stdout"),
            *arguments,
            env=environment,
            cwd=root / "work",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
    assert process.stdin is not None, "stdin is a pipe"
    assert process.stdout is not None, "likewise"
    try:
        report = await process.stdout.read()
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(_SUPERVISOR_SECONDS):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
    kind, _, number = report.partition(b" ")
    if kind == b"errno":
        raise OSError(int(number), os.strerror(int(number)))
    return int(number) if kind == b"exit" else -signal.SIGKILL  # without a report, the supervisor was killed


def _new_folder(config: CommandConfig, kept_in: Path | None, name: str) -> tuple[Path, Callable[[], object]]:
    """A new folder, in `kept_in` under the name if it is kept; and what ends it."""
    end: Callable[[], object]
    if kept_in is None:
        temporary = tempfile.TemporaryDirectory(prefix="nat-command-", ignore_cleanup_errors=True)
        root, end = Path(temporary.name).absolute(), temporary.cleanup
    else:
        kept_in.mkdir(parents=True, exist_ok=True)
        plain = re.sub(r"[^\w.#-]+", "_", name).strip(".").encode()[:_LONGEST_NAME].decode(errors="ignore")
        root = Path(tempfile.mkdtemp(prefix=f"{plain}-", dir=kept_in)).absolute()
        end = partial(_tidy, root)
    for folder in ("home", "tmp"):
        (root / folder).mkdir()
    if config.folder is None:
        (root / "work").mkdir()
    else:
        shutil.copytree(config.folder, root / "work", symlinks=True)
    return root, end


def _tidy(root: Path) -> None:
    """Redact the recorded input and output in a kept folder; other files belong to the program."""
    for folder in ("home", "tmp"):
        shutil.rmtree(root / folder, ignore_errors=True)
    for recorded in ("stdin", "stdout", "stderr"):
        path = root / recorded
        if path.is_file() and path.stat().st_size <= MAX_READ_BYTES:
            path.write_text(redact(path.read_text(encoding="utf-8", errors="replace")), encoding="utf-8")


def _text(folder: Path, name: str) -> str:
    """The text of a file that the program has written below the folder."""
    path = folder / name
    if not (path.is_file() and path.resolve().is_relative_to(folder.resolve())):
        raise MissingOutput(f"the program wrote no file {name!r}")
    if path.stat().st_size > MAX_READ_BYTES:
        raise MissingOutput(f"{name} is larger than {MAX_READ_BYTES} bytes")
    return path.read_text(encoding="utf-8", errors="replace")


def _number(folder: Path, name: str) -> float:
    text = _text(folder, name).strip()
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < float("inf"):
        raise MissingOutput(f"the file {name!r} holds {excerpt(repr(text), 100)}, which is not one number")
    return number


def _stderr_text(root: Path) -> str:
    """The end of the program's stderr."""
    path = root / "stderr"
    if not path.is_file():
        return "its stderr was replaced"
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        text = file.read().decode(errors="replace").strip()
    return f"the end of its stderr: {text}" if text else "its stderr is empty"


@register_function(config_type=CommandConfig)
async def command(config: CommandConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """Listen on a free port of this machine, and run the program for each input.

    Raises:
        ConfigError: the program or the folder is not there, which would fail in every rollout.

    """
    findings = []
    if isinstance(config.command, list) and "/" not in config.command[0] and shutil.which(config.command[0]) is None:
        findings.append(f"workflow.command: there is no program {config.command[0]!r} on the PATH")
    if config.folder is not None and not config.folder.is_dir():
        findings.append(f"workflow.folder: {config.folder} is not a folder (paths start at the current one)")
    if findings:
        raise ConfigError(findings)
    check_installed("command")
    from nat.gateway.access import Keyring
    from nat.gateway.app import GatewayApp
    from nat.http.server import listening

    beside = builder.run_dir  # without a run, folders are kept beside the reports
    if beside is None:
        beside = builder.get_output_dir() if isinstance(builder, EvalBuilder) else Path()
    upstream = await builder.get_llm(config.llm, wrapper_type=WRAPPER_TYPE)
    keyring = Keyring()
    async with listening(GatewayApp(keyring)) as url:
        workflow = CommandWorkflow(config, upstream, keyring, url=url, kept_in=beside / KEPT_FOLDERS)
        yield FunctionInfo.from_fn(workflow.run, description="Runs a program that calls the model over HTTP")


class CommandRewardConfig(EvaluatorBaseConfig, name="command_reward"):
    """The score is the number in the `reward_file` of a `command`."""


@register_score(CommandRewardConfig, "The reward that the program wrote")
def command_reward(item: EvalInputItem, _: CommandRewardConfig) -> Score:
    """Raises an error if the program wrote no number; 0 would be a guess."""
    records = [
        CommandRecord.model_validate(step.data.output)
        for step in item.trajectory
        if step.event_type is IntermediateStepType.CUSTOM_END and step.name == COMMAND_STEP and step.data is not None
    ]
    rewards = [record.reward for record in records if record.reward is not None]
    if not rewards:
        raise EvaluationError("no program wrote a reward: is the workflow a `command` with a `reward_file`?")
    return rewards[-1], {"rewards": rewards}
