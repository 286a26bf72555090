"""Signals end a command: it cleans up, exits at once at a second signal, and has the usual exit code."""

import signal
import threading
import time

import pytest

from fakes.processes import DEADLINE, Processes, first_line
from nat.cli import event_loop
from nat.runs.preemption import EXIT_CODE

COMMAND = """
import asyncio, os, signal, subprocess, sys, threading, time, click
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background lets its children ignore it
from nat.builder.child_processes import known_child
from nat.cli import event_loop
from nat.cli.main import cli, run_cli
from nat.runs.preemption import Preemption

preemption = {preemption}

def say(text):
    print(text, flush=True)

async def body():
{body}

@click.command("body")
def command():
    event_loop.run(body(), preemption=preemption)

cli._targets["body"] = ("__main__:command", "")
sys.argv[1:] = ["body"]
run_cli()
"""


def started(processes: Processes, body: str, *, grace: float | None = None, **options):
    """A command with this coroutine that has reported that it is ready; with `grace` it can go on later."""
    indented = "\n".join(f"    {line}" for line in body.strip().splitlines())
    command = COMMAND.replace("{preemption}", "None" if grace is None else f"Preemption({grace})")
    process = processes.start("-c", command.replace("{body}", indented), **options)
    first_line(process)
    return process


def ended(process) -> tuple[int, str, str]:
    deadline = threading.Timer(DEADLINE, process.kill)
    deadline.start()
    out, err = process.stdout.read(), process.stderr.read()  # `communicate` would miss what `first_line` has buffered
    process.wait()
    deadline.cancel()
    assert "Traceback" not in err
    return process.returncode, out, err


CLEANS_UP = """
try:
    say("ready")
    await asyncio.sleep(1000)
finally:
    await asyncio.sleep(0.01)
    say("cleaned up")
"""


@pytest.mark.parametrize(
    ("number", "code", "text"),
    [
        (signal.SIGINT, 130, "Interrupted."),
        (signal.SIGTERM, 143, "Interrupted by SIGTERM."),
        (signal.SIGHUP, 129, "Interrupted by SIGHUP."),
    ],
)
def test_each_signal_lets_the_command_clean_up(number, code, text):
    """SIGTERM and SIGHUP act like Ctrl-C; the exit code is 128 plus the signal's number."""
    with Processes() as processes:
        process = started(processes, CLEANS_UP)
        process.send_signal(number)
        found, out, err = ended(process)
    assert found == code
    assert out == "cleaned up\n"
    assert err.strip() == text


def test_an_ignored_signal_stays_ignored():
    """Under `nohup` a SIGHUP ends nothing."""
    body = "signal.raise_signal(signal.SIGHUP)\nsay('ready')\nawait asyncio.sleep(0.1)\nsay('went on')"
    with Processes() as processes:
        process = started(processes, body, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        code, out, _ = ended(process)
    assert (code, out) == (0, "went on\n")


HANGS = """
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
with known_child(child.pid):
    try:
        say("ready")
        await asyncio.sleep(1000)
    finally:
        say("cleans up")
        await asyncio.sleep(1000)
"""


@pytest.mark.parametrize(
    ("number", "grace"), [(signal.SIGINT, None), (signal.SIGTERM, None), (signal.SIGINT, 100)], ids=str
)
def test_a_second_signal_ends_the_cleanup(number, grace):
    """The process and its children end at once, without a traceback; Ctrl-C ends a grace as well."""
    with Processes() as processes:
        process = started(processes, HANGS, grace=grace)
        process.send_signal(signal.SIGTERM)
        first_line(process)
        process.send_signal(number)
        code, _, err = ended(process)  # which reads until the child, too, has closed its end of the pipe
    assert code == 128 + number
    assert "Ended at once" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, EXIT_CODE), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_sigterm_alone_says_that_a_command_can_go_on(number, code):
    """A restart policy reads EX_TEMPFAIL; what a user ended keeps the exit code of its signal."""
    with Processes() as processes:
        process = started(processes, CLEANS_UP, grace=20)
        process.send_signal(number)
        found, out, _ = ended(process)
    assert (found, out) == (code, "cleaned up\n")


REPEATED = """
try:
    say("ready")
    await asyncio.sleep(1000)
finally:
    say("cleans up")
    await asyncio.sleep(0.5)
    say("cleaned up")
"""


def test_a_repeated_sigterm_leaves_the_grace(tmp_path):
    """Service managers send it to the process, to its group and to its control group."""
    with Processes() as processes:
        process = started(processes, REPEATED, grace=20)
        process.send_signal(signal.SIGTERM)
        first_line(process)
        process.send_signal(signal.SIGTERM)
        code, out, _ = ended(process)
    assert (code, out) == (EXIT_CODE, "cleaned up\n")


WORKS = """
say("ready")
child = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
with known_child(child.pid):
    try:
        await asyncio.sleep(1000)
    finally:
        while True:
            await asyncio.sleep(0)
"""


@pytest.mark.parametrize("body", [HANGS, WORKS, "say('ready')\ntime.sleep(1000)"])
def test_the_grace_ends_on_the_clock(body):
    """However much there is to do: SIGKILL would come next; the command and its children end with the same code."""
    with Processes() as processes:
        process = started(processes, body, grace=1)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code, _, err = ended(process)
    assert code == EXIT_CODE
    assert time.monotonic() - begun < 10
    assert "Ended at once: the cleanup did not end" in err


def test_a_completed_command_is_not_cancelled():
    """What follows its end ends as well, and nothing need go on."""
    body = "preemption.completed = True\nsay('ready')\nawait asyncio.sleep(0.5)\nsay('sent')"
    with Processes() as processes:
        process = started(processes, body, grace=20)
        process.send_signal(signal.SIGTERM)
        code, out, _ = ended(process)
    assert (code, out) == (0, "sent\n")


@pytest.mark.slow
def test_a_thread_that_never_ends_does_not_delay_the_exit():
    """A worker thread whose caller is gone is abandoned."""
    body = "say('ready')\nthreading.Thread(target=time.sleep, args=(1000,)).start()\nawait asyncio.sleep(1000)"
    with Processes() as processes:
        process = started(processes, body)
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 143


def test_sys_exit_in_a_task_ends_that_task():
    """Other tasks continue; the task's awaiter gets the SystemExit."""
    body = """
say("ready")
async def quits():
    sys.exit(0)
task = asyncio.create_task(quits())
await asyncio.sleep(0.05)
try:
    await task
except SystemExit:
    say("caught")
"""
    with Processes() as processes:
        code, out, _ = ended(started(processes, body))
    assert (code, out) == (0, "caught\n")


@pytest.mark.parametrize(
    ("line", "said"), [("sys.exit(0)", "called sys.exit(0)"), ("raise asyncio.CancelledError", "cancelled the command")]
)
def test_what_ends_the_command_from_within_is_an_error(line, said):
    """Exit code 0 would report success, and without a signal a cancellation is no interruption."""
    with Processes() as processes:
        code, _, err = ended(started(processes, f"say('ready')\n{line}"))
    assert code == 1
    assert said in err


def test_unprintable_text_is_printed_as_escapes():
    """A surrogate in an answer does not end the command."""
    with Processes() as processes:
        code, out, _ = ended(started(processes, "say('ready')\nsay('a\\ud83d')"))
    assert (code, out) == (0, "a\\ud83d\n")


@pytest.mark.parametrize("keep_stdout", [True, False])
def test_what_an_agent_prints_leaves_the_json_alone(capsys, keep_stdout):
    """Frameworks print banners; with `keep_stdout` these go to stderr, and stdout has the command's own output."""

    async def agent() -> str:
        print("LiteAgent started")
        return "{}"

    print(event_loop.run(agent(), keep_stdout=keep_stdout))
    assert capsys.readouterr() == (("{}\n", "LiteAgent started\n") if keep_stdout else ("LiteAgent started\n{}\n", ""))
