"""Requests in a child process reach a limit, end alone, and leave the next ones alone."""

import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from fakes.tiny_model import make_tiny_model, tiny_tokenizer
from nat.backend.model_loader import load_model
from nat.backend.tokenizer import ChatNotRendered, ChatTokenizer
from nat.errors import ModelCodeStopped, ModelNotSupported
from nat.sandbox.process import Sandbox

TIME = "took more than 0.3 s of processor time"
MEMORY = "needed more than 1 GiB of memory"


def small_sandbox(**limits):
    return Sandbox(**{"seconds": 0.3, "memory_bytes": 2**30, **limits})


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        ("{{ 9**(9**9) }}", TIME),
        ("{{ '%999999999d' % 1 }}", f"{TIME}|{MEMORY}"),
        ("{{ 'a' * 10**10 }}", MEMORY),
        ("{{ [0] * 10**9 }}", MEMORY),
        ("{{ 'a' | center(10**10) }}", MEMORY),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", TIME),
        (
            "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            f"{TIME}|{MEMORY}",
        ),
        ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}", TIME),
        ("{{ 'a' * (80 * 2**20) }}", f"gave more than 64 MiB|{TIME}"),
        ("{{ raise_exception('a' * 10**9) }}", f"{TIME}|{MEMORY}"),
    ],
)
def test_a_template_reaches_a_limit(source, limit):
    """The error names the template, the limit and what to do; the next request is answered."""
    sandbox = small_sandbox()
    with pytest.raises(ModelCodeStopped, match=f"the model's chat template ({limit})") as found:
        rendered(sandbox, source)
    assert "use another model" in found.value.hint
    assert rendered(sandbox, "{{ 1 }}") == "1"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "RecursionError"),
        ("{% for i in range(10**9) %}{% endfor %}", "OverflowError"),
        ("{% if %}", "TemplateSyntaxError"),
        (r"{{ raise_exception('no \ud800') }}", r"TemplateError: no \\ud800"),  # no answer could hold it as it is
    ],
)
def test_a_template_that_raises_keeps_its_process(source, error):
    """An error is an answer: the process stays."""
    tokenizer = ChatTokenizer(tiny_tokenizer())
    tokenizer.hf.chat_template = source
    with pytest.raises(ChatNotRendered, match=error):
        tokenizer.render_text([{"role": "user", "content": "hi"}])


BOMBS = {
    "time": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100},
    "panic": {"type": "Replace", "pattern": {"Regex": "(?:(?:a|aa)+)+$"}, "content": "b"},
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_tokenizer_fails_its_own_request_only(bomb):
    """Growth and backtracking end in the child; what else it encodes stays right."""
    hf = tiny_tokenizer()
    state = json.loads(hf.backend_tokenizer.to_str())
    state["added_tokens"] = []
    state["normalizer"] = {"type": "Sequence", "normalizers": [BOMBS[bomb]] * 8}
    hf._tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer = ChatTokenizer(hf, sandbox=small_sandbox())
    with pytest.raises((ModelCodeStopped, ModelNotSupported), match="the model's tokenizer"):
        tokenizer.encode("a" * 3000 + "!")
    assert tokenizer.decode(tokenizer.encode("xyz")) == "xyz"


def test_a_busy_child_holds_up_no_other_request():
    """A second child starts for it; the first one's request still ends at its limit."""
    sandbox, outcome = small_sandbox(seconds=3), Future()
    busy = threading.Thread(target=lambda: outcome.set_exception(stopped(sandbox)))
    busy.start()
    assert rendered(sandbox, "{{ 2 }}") == "2"
    assert not outcome.done()
    busy.join()
    assert "took more than 3 s" in str(outcome.exception())


def test_a_child_that_was_killed_while_idle_is_replaced():
    """No request is lost."""
    sandbox = small_sandbox()
    with started() as pids:
        rendered(sandbox, "")
    [pid] = pids
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert rendered(sandbox, "3") == "3"


def test_children_end_with_their_sandbox():
    """Nothing else ends them."""
    sandbox = small_sandbox()
    with started() as pids:
        rendered(sandbox, "")
    [pid] = pids
    del sandbox
    gc.collect()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.usefixtures("no_garbage_collection")
def test_a_child_with_an_opened_tokenizer_ends_with_its_model(tmp_path):
    """At once: a process that computes in torch may not collect garbage for a long time, and the child has memory."""
    with started() as pids:
        loaded = load_model(make_tiny_model(tmp_path), device="cpu")
        assert loaded.tokenizer.token_text(loaded.tokenizer.encode("a")[0]).text == "a"
    [pid] = pids
    assert Path(f"/proc/{pid}").exists()
    del loaded
    assert not Path(f"/proc/{pid}").exists()


ORPHAN = """
import os, threading
from nat.sandbox.process import Sandbox
sandbox = Sandbox(seconds=1)
sandbox.start()
print(*open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split(), flush=True)
if os.environ["BUSY"]:
    render = {"template": "{{ 9**(9**9) }}", "variables": {}}
    threading.Thread(target=sandbox.call, args=("render", render), kwargs={"what": "it"}, daemon=True).start()
input()
"""


@pytest.mark.parametrize("busy", ["", "1"], ids=["idle", "busy"])
def test_a_child_ends_after_its_parent(busy):
    """Its socket is closed, or the kernel ends it at its limit of processor time, though nobody reads its answer."""
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN],
        env={**os.environ, "BUSY": busy},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        pid = int(parent.stdout.readline())
        ended = os.pidfd_open(pid)
        parent.kill()
    assert select.select([ended], [], [], 60)[0]
    os.close(ended)


@pytest.fixture
def no_garbage_collection():
    gc.disable()
    yield
    gc.enable()


def rendered(sandbox, source):
    return sandbox.call("render", {"template": source, "variables": {}}, what="the model's chat template")


def stopped(sandbox):
    with pytest.raises(ModelCodeStopped) as found:
        rendered(sandbox, "{{ 9**(9**9) }}")
    return found.value


@contextmanager
def started():
    """The processes that the test's thread starts meanwhile."""
    listed = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children")
    before, pids = set(listed.read_text().split()), []
    yield pids
    pids += [int(pid) for pid in set(listed.read_text().split()) - before]
