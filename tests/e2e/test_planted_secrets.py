"""Secrets are planted in every input; no file and no output of a run contains one, and files are private."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.finetuning_project import Coin
from fakes.leaky_project import IN_ENVIRONMENT, OVERRIDE, PLAIN, SECRETS
from fakes.openai_server import OpenAIServer, Refuse, SeenRequest
from nat.secrets import REDACTED

TESTS = Path(__file__).parents[1]
DEADLINE = 240


class Telltale(Coin):
    """A server that quotes the request's headers in its answers, and refuses one example with them."""

    def __call__(self, request: SeenRequest):
        if request.last_text.endswith("2"):
            return Refuse(400, f"bad key: {request.headers}")
        return super().__call__(request)


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(Telltale()) as server:
        yield server


async def nat(folder: Path, server: OpenAIServer, *arguments: str, ending: str = "good") -> tuple[int, str]:
    """The exit code and the whole output."""
    script = str(TESTS / "fakes" / "leaky_project.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, str(folder), server.base_url, ending, *arguments,
        env={**os.environ, **IN_ENVIRONMENT, **PLAIN, "PYTHONPATH": str(TESTS)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(DEADLINE):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


def leaks(text: str) -> list[str]:
    """The secrets that a text contains, in any escaped form."""
    return [secret for secret in SECRETS if secret in text or secret.encode("unicode_escape").decode() in text]


def finetune(folder: Path, *options: str) -> list[str]:
    held_out = f"--validation_dataset={folder / 'val.json'}"
    return [
        "--log-level",
        "info",
        "finetune",
        f"--config_file={folder / 'config.yml'}",
        held_out,
        "-o",
        *OVERRIDE,
        *options,
    ]


@pytest.mark.parametrize(
    ("ending", "options"), [("good", ["--json"]), pytest.param("raises", [], marks=pytest.mark.slow)]
)
async def test_a_run_writes_and_prints_no_secret(tmp_path, server, ending, options):
    """Secrets in literals, variables, overrides, headers, URLs, echoes and exceptions are in no file and no output."""
    code, output = await nat(tmp_path, server, *finetune(tmp_path, *options), ending=ending)
    assert code == (1 if ending == "raises" else 0), output
    assert leaks(output) == []
    assert "I know" in output
    [run_dir] = [path for path in (tmp_path / "output").iterdir() if path.is_dir() and not path.is_symlink()]
    files = [path for path in run_dir.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"journal.sqlite", "config.resolved.yaml", "epoch_0000.jsonl"} <= names
    for path in files:
        assert leaks(path.read_bytes().decode(errors="replace")) == [], path
    trajectories = (run_dir / "trajectories" / "epoch_0000.jsonl").read_text()
    assert REDACTED in trajectories, "what the agent and the server told is there, without the secrets"
    assert PLAIN["PLAIN_MODEL"] in (run_dir / "config.resolved.yaml").read_text()
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in [run_dir, *run_dir.rglob("*")] if path.is_dir()} == {0o700}


async def test_a_plan_holds_no_secret(tmp_path, server):
    """The resolved configuration in the plan is redacted."""
    code, output = await nat(tmp_path, server, *finetune(tmp_path, "--dry_run"))
    assert (code, leaks(output)) == (0, []), output


async def test_configuration_errors_show_no_secret(tmp_path, server):
    """An error that quotes a value redacts it before cutting it."""
    wrong = ["-o", "llms.judge.timeout", "x" * 75 + "${SOME_TOKEN}", "-o", "llms.judge.api_key.inner", "1"]
    code, output = await nat(
        tmp_path, server, "validate", f"--config_file={tmp_path / 'config.yml'}", "-o", *OVERRIDE, *wrong
    )
    assert code == 1
    assert "timeout" in output
    assert leaks(output) == []
    assert "unmentioned" not in output
    assert "override-key" not in output


async def test_reports_of_an_evaluation_are_without_secrets(tmp_path, server):
    """Reports of an evaluation are redacted and private, as the files of a run are."""
    code, output = await nat(
        tmp_path, server, "eval", f"--config_file={tmp_path / 'config.yml'}", "-o", *OVERRIDE,
        "-o", "eval.general.output_dir", str(tmp_path / "reports"),
    )  # fmt: skip
    assert (code, leaks(output)) == (0, []), output
    files = [path for path in (tmp_path / "reports").rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert leaks(path.read_text()) == [], path
        assert path.stat().st_mode & 0o777 == 0o600
