"""Child processes of ours: their modules, their environment, their end."""

import asyncio
import os
import sys

import pytest

from nat.builder.child_processes import python_module, run_module

TELLS = 'import os, sys; sys.exit(f\'{os.environ.get("HF_TOKEN")} {os.environ["LANG"]} {sys.argv[1:]}\')'
SHADOW = "raise SystemExit('a file of the user')"
WAITS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Make a module that our interpreter finds."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"), prepend=":")
    (tmp_path / "modules").mkdir()

    def make(code):
        (tmp_path / "modules" / "made_for_the_test.py").write_text(code)
        return "made_for_the_test"

    return make


async def test_a_module_gets_no_secret_and_returns_its_exit_code(module, monkeypatch):
    """Arguments are passed, the user's secrets are not; exit code and output are returned."""
    monkeypatch.setenv("HF_TOKEN", "hf-token-of-the-user-1")
    monkeypatch.setenv("LANG", "C.UTF-8")
    assert await run_module(module(TELLS), "a", "b c") == (1, "None C.UTF-8 ['a', 'b c']")
    assert await run_module(module("")) == (0, "")


async def test_files_of_the_working_folder_shadow_no_library(tmp_path, monkeypatch):
    """A user's `random.py` beside the configuration is not imported by our processes."""
    (tmp_path / "random.py").write_text(SHADOW)
    monkeypatch.chdir(tmp_path)
    assert python_module("nat.backend")[0] == sys.executable
    assert await run_module("random") == (0, "")  # the library's own, which prints some figures
    assert (await run_module("nat.runs.plot", str(tmp_path)))[1].startswith("JournalError: no journal")


async def test_a_cancelled_wait_ends_the_process(module, tmp_path):
    """Ctrl-C ends a process before the wait returns."""
    began = tmp_path / "began"
    os.mkfifo(began)
    running = asyncio.create_task(run_module(module(WAITS), str(began)))
    pid = int(await asyncio.to_thread(began.read_text))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
