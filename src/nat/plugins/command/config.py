"""The `command` section of a YAML, and the record of a run of its program."""

from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import BaseModel, Field, field_validator

from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import USUAL_CONCURRENCY

COMMAND_STEP = "command"
"""Name of the step that records a run of the program."""
_MODEL_SERVER = {"OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"}


class CommandConfig(FunctionBaseConfig, name="command"):
    """Runs an unmodified program for each example; URL and key of the model are in its environment."""

    most_at_a_time = USUAL_CONCURRENCY
    llm: LLMRef
    """The model that answers, for every model name in the program's requests."""
    command: list[str] | str = Field(min_length=1)
    """The program and its arguments, or one command line for the shell."""
    folder: Path | None = None
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
