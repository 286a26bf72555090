"""What the YAML says of a program."""

from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import Field, field_validator

from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig
from nat.plugins.command.environment import check_names


class CommandConfig(FunctionBaseConfig, name="command"):
    """Runs a program for each example, unchanged: it finds its model server and key in its environment."""

    llm: LLMRef
    """The model that answers, whatever name the program asks for."""
    command: list[str] | str = Field(min_length=1)
    """The program and its arguments, or one text for the shell."""
    folder: Path | None = None
    """Copied for each example, to be the folder that the program runs in; an empty one if left out."""
    input: Literal["stdin", "argument", "file"] = "stdin"
    """How the program gets its input; as argument it is the last one (`$1` in a text for the shell)."""
    input_file: str = "input.txt"
    """Where the input is with `input: file`, in the folder that the program runs in."""
    output: Literal["stdout", "file"] = "stdout"
    """Where the program leaves its answer."""
    output_file: str = "output.txt"
    """Where the answer is with `output: file`, in the same folder."""
    reward_file: str | None = None
    """A file with one number that the program leaves there too, for the evaluator `command_reward`."""
    env: dict[str, str] = Field(default_factory=dict)
    """Further variables of its environment, which otherwise holds PATH, the language, and what it needs to find the
    model; nothing else is passed on."""
    timeout: float = Field(default=300.0, gt=0)
    """Seconds until the program, with all that it started, is ended and the rollout has failed."""
    keep_folder: bool = False
    """Keep the folder, with what the program wrote to stdout and stderr, beside the run's other files."""

    @field_validator("input_file", "output_file", "reward_file")
    @classmethod
    def _stays_inside(cls, path: str | None) -> str | None:
        if path is not None and (path in ("", ".") or path.startswith("/") or ".." in PurePosixPath(path).parts):
            raise ValueError(f"{path!r} has to be a path below the working folder")
        return path

    @field_validator("env")
    @classmethod
    def _leaves_the_model_alone(cls, env: dict[str, str]) -> dict[str, str]:
        return check_names(env)
