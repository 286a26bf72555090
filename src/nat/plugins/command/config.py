"""The `command` section of a YAML, and the environment variables of its program.

The environment starts empty, since the harness's has keys that an agent must not see.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import Field, field_validator

from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import USUAL_CONCURRENCY

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT")
_MODEL_SERVER = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")


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
        reserved = sorted(set(env) & set(_MODEL_SERVER))
        if reserved:
            raise ValueError(
                f"{', '.join(reserved)}: reserved, because each rollout gets its own URL and key of the model"
            )
        return env


def environment(
    own: Mapping[str, str], inherited: Mapping[str, str], *, url: str, key: str, home: Path, scratch: Path
) -> dict[str, str]:
    """The program's environment; `url` is the gateway's, without `/v1`, and `own` the configuration's variables."""
    passed_on = {name: inherited[name] for name in _PASSED_ON if name in inherited}
    model = dict(zip(_MODEL_SERVER, (f"{url}/v1", key, url, key), strict=True))
    direct = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")  # `own` may name a proxy
    return {**passed_on, **direct, "HOME": str(home), "TMPDIR": str(scratch), **own, **model}
