"""The child process: ready line, death, stop. A small script replaces the real backend."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from nat.errors import BackendError, BackendUnreachable
from nat.plugins.local import process
from nat.plugins.local.process import running_backend
from nat.secrets import known_secrets
from nat.wire.serving import ServeOptions

READY = 'import sys; print(\'{"event": "ready", "port": 4711}\', flush=True); sys.stdin.read()'
NOISY = "print('a library says hello')\n" + READY
DIES = "import sys; print('cannot load the model', file=sys.stderr); sys.exit(3)"
SILENT = "import sys; print('loading', file=sys.stderr, flush=True); sys.stdin.read()"
STUBBORN = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    'print(\'{"event": "ready", "port": 1}\', flush=True); sys.stdin.read(); print(flush=True)'
)
HANGS = f"{STUBBORN}\ntime.sleep(600)"
KEY = (
    "import json, os, pathlib, sys; seen = {'line': json.loads(sys.stdin.readline()), 'environ': dict(os.environ)};"
    "pathlib.Path(sys.argv[1]).write_text(json.dumps(seen));"
    'print(\'{"event": "ready", "port": 1}\', flush=True); sys.stdin.read()'
)

LEAKS = """
import logging, os, sys
from nat.backend import __main__ as backend
received = backend.received
def telling(line):
    options = received(line)
    key = options.api_key.get_secret_value()
    print("stderr", key, file=sys.stderr)
    logging.getLogger("nat").error("log %s", key)
    return options.model_copy(update={"model": options.model / key})
backend.received = telling
sys.exit(backend.main())
"""


TELLS = """
import logging, sys
from nat.backend import __main__ as backend
backend.missing_packages = lambda _: logging.getLogger("nat.backend.notices").warning("by its logger") or ["torch"]
sys.exit(backend.main())
"""

OPTIONS = ServeOptions(model=Path("m"), port=0)


def child(script: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script, *arguments)


async def test_each_notice_of_the_backend_is_shown_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At its start and later: the backend's log is a file that nobody reads before the run has failed."""
    first, later = (json.dumps({"event": "notice", "message": f"m: {when}"}) for when in ("at the start", "later"))
    said = "\n".join([first, json.dumps({"event": "ready", "port": 4711}), later, ""])
    script = f"import sys; sys.stdout.write({said!r}); sys.stdin.read()"  # one write, which the end cannot cut
    async with running_backend(OPTIONS, log_path=tmp_path / "log", startup_timeout=30, command=child(script)):
        pass
    with pytest.raises(BackendError, match="torch: not installed"):
        async with running_backend(OPTIONS, log_path=tmp_path / "log", startup_timeout=60, command=child(TELLS)):
            pass
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["m: at the start", "m: later", "m: by its logger"]


@pytest.mark.parametrize(
    ("end", "hint"),
    [
        ("sys.exit(3)", "fix what the log reports"),
        ("os.kill(os.getpid(), 9)", "ran out of memory"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV ended it"),
        ("os.kill(os.getpid(), 15)", "SIGTERM ended it"),
    ],
)
async def test_each_exit_has_its_own_remedy(tmp_path: Path, end: str, hint: str) -> None:
    """Only a kill by the system suggests a lack of memory."""
    with pytest.raises(BackendUnreachable) as error:
        async with running_backend(
            OPTIONS, log_path=tmp_path / "log", startup_timeout=30, command=child(f"import os, sys; {end}")
        ):
            pass
    assert re.search(hint, error.value.hint)
    assert ("memory" in error.value.hint) == ("9" in end)


async def test_the_reason_of_a_failed_start_is_quoted(tmp_path: Path) -> None:
    """The child's own reason and remedy replace the end of its log."""
    event = {"event": "failed", "message": "no model", "hint": "give one"}
    script = f"print({json.dumps(event)!r}, flush=True); raise SystemExit(1)"
    with pytest.raises(BackendError, match="the backend cannot start: no model") as error:
        async with running_backend(OPTIONS, log_path=tmp_path / "log", startup_timeout=30, command=child(script)):
            pass
    assert error.value.hint == "give one"


async def test_the_reason_of_an_end_is_quoted(tmp_path: Path) -> None:
    """A backend that ends because its engine has died says so in its last line; its log has the rest."""
    event = {"event": "failed", "message": "vLLM ended (RuntimeError)", "hint": "start again"}
    script = f"{READY.rpartition(';')[0]}; print({json.dumps(event)!r}, flush=True); raise SystemExit(1)"
    async with running_backend(
        OPTIONS, log_path=tmp_path / "log", startup_timeout=30, command=child(script)
    ) as backend:
        while backend.alive or not backend.printed:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0)
        with pytest.raises(
            BackendUnreachable, match=r"exit code 1 \(process \d+\): vLLM ended \(RuntimeError\)"
        ) as error:
            backend.check()
    assert error.value.hint == "start again"


async def test_a_child_that_fails_while_stopping_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log reports a last checkpoint that could not be written."""
    script = f"{READY}; print('No space left on device', file=sys.stderr); sys.exit(1)"
    script = script.replace("import sys;", "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);", 1)
    async with running_backend(OPTIONS, log_path=tmp_path / "log", startup_timeout=30, command=child(script)):
        pass
    assert "exit code 1 when it was stopped" in caplog.text
    assert "No space left on device" in caplog.text


async def test_a_backend_that_hangs_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has done nothing for the whole grace."""
    monkeypatch.setattr(process, "_STOP_SECONDS", 1.0)
    async with running_backend(OPTIONS, log_path=tmp_path / "log", startup_timeout=60, command=child(HANGS)) as backend:
        pass
    assert not backend.alive
    assert "did not stop within 1 s and is killed" in caplog.text


async def test_a_silent_child_is_ended_at_the_deadline(tmp_path: Path) -> None:
    """A backend that never reports that it is ready is ended."""
    with pytest.raises(BackendUnreachable, match=r"not ready within 1 s(.|\n)*startup_timeout"):
        async with running_backend(OPTIONS, log_path=tmp_path / "log", startup_timeout=1, command=child(SILENT)):
            pass


async def test_the_child_ends_when_its_parent_closes_stdin_even_if_it_ignores_sigterm(tmp_path: Path) -> None:
    """Closing stdin ends a child that ignores SIGTERM, so no orphan stays."""
    async with running_backend(
        OPTIONS, log_path=tmp_path / "log", startup_timeout=30, command=child(STUBBORN)
    ) as backend:
        pass
    assert not backend.alive


async def test_the_key_is_new_for_each_process_and_in_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key and secrets are passed through stdin; the environment has neither the key nor the user's secrets."""
    monkeypatch.setenv("HF_TOKEN", "hf-token-of-the-user-1")
    known_secrets.remember(["hf-token-of-the-user-1"])
    seen = tmp_path / "key"
    log, command = tmp_path / "log", child(KEY, str(seen))
    async with running_backend(OPTIONS, log_path=log, startup_timeout=30, command=command) as first:
        child_saw = json.loads(seen.read_text())
        options = {"model": "m", "port": 0, "api_key": first.api_key, "exit_with_parent": True}
        assert child_saw["line"] == {
            "class": "nat.wire.serving:ServeOptions",
            "options": options,
            "secrets": ["hf-token-of-the-user-1"],
        }
        assert not {first.api_key, "hf-token-of-the-user-1"} & set(child_saw["environ"].values())
    async with running_backend(OPTIONS, log_path=log, startup_timeout=30, command=command) as second:
        assert second.api_key != first.api_key


@pytest.mark.slow
async def test_the_log_holds_no_secret_of_the_handover(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The key and the user's secrets are starred in the backend's log and errors."""
    known_secrets.remember(["hf-token-of-the-user-1"])
    log = tmp_path / "backend.log"
    options = ServeOptions(model=tmp_path / "hf-token-of-the-user-1", port=0)
    with pytest.raises(BackendError) as error:
        async with running_backend(options, log_path=log, startup_timeout=120, command=child(LEAKS)):
            pass
    written = log.read_text() + str(error.value)
    assert "stderr **********" in written
    assert "log **********" in written
    assert "/**********/**********" in written
    assert "sk-nat-" not in written
    assert "hf-token-of-the-user-1" not in written
