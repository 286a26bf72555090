"""What holds for a whole process is tried in processes of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOBODY = 65534


def run(code: str, *arguments: str, **options) -> str:
    """What a new interpreter prints."""
    options = {"env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, **options}
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120, **options,
    )  # fmt: skip
    return done.stdout


def test_output_is_redacted_however_it_is_written():
    """Prints, bytes, logs, warnings, tracebacks of threads, and the last one of the interpreter."""
    code = """
import logging, sys, threading, warnings
from nat.wire.known_secrets import known_secrets
from nat.wire.private_process import redact_output, unredacted
redact_output()
known_secrets.remember(["planted-secret-1"])
logging.basicConfig()
print("print", "planted-secret-1")
sys.stdout.writelines(["writelines ", "planted-secret-1\\n"])
sys.stdout.flush()
sys.stdout.buffer.write(b"bytes planted-secret-1\\n")
sys.stdout.buffer.flush()
logging.error("log %s", "planted-secret-1")
warnings.warn("warning planted-secret-1")
thread = threading.Thread(target=lambda: int("thread planted-secret-1"))
thread.start(); thread.join()
print("to its owner: planted-" + "owner-1", file=unredacted(sys.stdout), flush=True)
raise SystemError("raised planted-secret-1")
"""
    output = run(code)
    assert "planted-secret-1" not in output
    for way in ("print", "writelines", "bytes", "log", "warning", "thread", "raised"):
        assert f"{way} **********" in output
    assert "to its owner: planted-owner-1" in output


def test_the_owner_is_shown_a_new_key():
    """The one line that tells a key goes around the redaction."""
    code = """
import sys
from nat.wire.known_secrets import new_key
from nat.wire.private_process import redact_output, unredacted
redact_output()
key = new_key()
print(key)
print(len(key), key, file=unredacted(sys.stdout))
"""
    first, second = run(code).splitlines()
    assert first == "**********"
    assert second.startswith("50 sk-nat-")


def test_files_are_the_users_own(tmp_path: Path):
    """Whatever is written afterwards, by child processes too, nobody else can read; a stricter mask stays."""
    code = """
import os, subprocess, sys
from nat.wire.private_process import keep_files_private
os.umask(0o300)
keep_files_private()
open("file", "w").close()
os.mkdir("folder")
subprocess.run(["/bin/sh", "-c", "echo > child"])
"""
    assert run(code, cwd=tmp_path) == ""
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert modes == {"file": "0o400", "folder": "0o400", "child": "0o400"}


@pytest.mark.skipif(sys.platform != "linux", reason="there is a /proc to be read on Linux only")
@pytest.mark.parametrize(("keeps", "seen"), [("", "read"), ("keep_memory_private()", "PermissionError")])
def test_children_of_the_same_user_cannot_read_the_environment(keeps, seen):
    """/proc/<pid>/environ of a process that keeps its memory private is closed to others of its user."""
    code = f"""
import ctypes, os
from nat.wire.private_process import keep_memory_private
if os.getuid() == 0:
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # a change of user has closed it, too
{keeps}
if os.fork() == 0:
    try:
        open(f"/proc/{{os.getppid()}}/environ").read(); print("read", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
    os._exit(0)
os.wait()
"""
    assert run(code).strip() == seen
