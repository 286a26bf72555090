"""Secrets are redacted; tests of functions that change a whole process use a new one."""

import ast
import base64
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import nat.secrets as module
from nat.secrets import REDACTED, KnownSecrets, excerpt, known_secrets, new_key, redact, redact_json, redacted_logs

SCALARS = st.text() | st.integers() | st.booleans() | st.none()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
AWKWARD = 'p"ass\\wörd/ 1\n'


def knowing(*values: str) -> KnownSecrets:
    secrets = KnownSecrets()
    secrets.remember(values)
    return secrets


@pytest.mark.parametrize(
    "written",
    [
        str,
        repr,
        json.dumps,
        lambda text: json.dumps(text, ensure_ascii=False),
        quote,
        lambda text: quote(text, safe=""),
    ],
)
def test_a_secret_is_found_in_any_encoding(written):
    """A secret is found plain, quoted by Python or JSON, and inside a URL."""
    text = f"before {written(AWKWARD)} after"
    assert REDACTED in knowing(AWKWARD).redact(text)
    assert "ass" not in knowing(AWKWARD).redact(text)


def test_a_login_is_found_in_a_basic_header():
    """Clients send the login of a URL in base64."""
    header = "Basic " + base64.b64encode(b"me:pass-word-1").decode()
    assert knowing("me:pass-word-1").redact(header) == f"Basic {REDACTED}"


def test_the_longest_secret_goes_first():
    """A secret inside another does not leave the rest of the longer one."""
    assert knowing("secret-1", "secret-1-longer").redact("secret-1-longer") == REDACTED


@pytest.mark.parametrize("value", ["", "default", "EMPTY", "test", "k", "not-needed", "password", REDACTED])
def test_common_words_are_no_secrets(value):
    """A word that is no key would star much of every text."""
    text = f"the word {value} in a text"
    assert knowing(value).redact(text) == text


def test_a_short_password_with_digits_is_a_secret():
    """Six characters with letters and digits are enough."""
    assert knowing("hunter2").redact("my hunter2!") == f"my {REDACTED}!"


def test_numbers_in_json_stay():
    """A secret of digits is starred in texts; token ids, seeds and log probabilities are not changed."""
    row = {"token_ids": [12345678, 1], "logprob": -0.12345678, "text": "12345678", "12345678": True}
    known_secrets.remember(["12345678"])
    assert json.loads(redact_json(json.dumps(row))) == {
        "token_ids": [12345678, 1],
        "logprob": -0.12345678,
        "text": REDACTED,
        REDACTED: True,
    }


@given(JSON)
def test_json_without_secrets_is_unchanged(value):
    """Without a secret, nothing is parsed or serialised."""
    text = json.dumps(value)
    assume("://" not in text)  # may begin a login
    known_secrets.remember(["a-secret-that-is-not-there"])
    assert redact_json(text) is text


def test_logins_in_urls_and_generated_keys_are_recognised_by_their_form():
    """They need not be registered."""
    key = new_key()
    assert KnownSecrets().redact(f"http://me:pw@host/x {key}!") == f"http://{REDACTED}@host/x {REDACTED}!"
    assert KnownSecrets().redact("git+ssh://git@host and a@b") == "git+ssh://git@host and a@b"


def test_an_excerpt_contains_no_part_of_a_secret():
    """A text is redacted before it is cut."""
    known_secrets.remember(["a-long-secret-1"])
    assert excerpt("12345 a-long-secret-1", 12) == f"12345 {REDACTED}"[:12]


def test_no_message_is_cut_by_its_format():
    """`{value!r:.80}` could leave a part of a secret; `excerpt` redacts first."""
    sources = sorted(Path(module.__file__).parent.rglob("*.py"))
    assert sources
    assert [str(path) for path in sources if re.search(r"!r:\.\d", path.read_text("utf-8"))] == []


def test_handlers_of_other_programs_are_redacted_with_tracebacks():
    """During a run, log handlers of the calling program write no secret."""
    known_secrets.remember(["a-long-secret-1"])
    written: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: written.append(logging.Formatter().format(record))
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        with redacted_logs():
            try:
                int("a-long-secret-1")
            except ValueError:
                logger.exception("it is %s", "a-long-secret-1")
    finally:
        logger.removeHandler(handler)
    [text] = written
    assert "a-long-secret-1" not in text
    assert f"it is {REDACTED}" in text
    assert f"invalid literal for int() with base 10: '{REDACTED}'" in text
    assert redact("a-long-secret-1") == REDACTED


NOBODY = 65534


def run(code: str, *arguments: str, **options) -> str:
    """The output of a new interpreter."""
    options = {"env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, **options}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120, **options,
    )  # fmt: skip
    return done.stdout


def test_all_output_is_redacted():
    """Prints, logs, warnings and tracebacks of threads and the interpreter are redacted."""
    code = """
import logging, sys, threading, warnings
from nat.secrets import known_secrets
from nat.secrets import redact_output, unredacted
redact_output()
known_secrets.remember(["planted-secret-1"])
logging.basicConfig()
print("print", "planted-secret-1")
sys.stdout.writelines(["writelines ", "planted-secret-1\\n"])
sys.stdout.flush()
logging.error("log %s", "planted-secret-1")
warnings.warn("warning planted-secret-1")
thread = threading.Thread(target=lambda: int("thread planted-secret-1"))
thread.start(); thread.join()
print("to its owner: planted-" + "owner-1", file=unredacted(sys.stdout), flush=True)
raise SystemError("raised planted-secret-1")
"""
    output = run(code)
    assert "planted-secret-1" not in output
    for way in ("print", "writelines", "log", "warning", "thread", "raised"):
        assert f"{way} **********" in output
    assert "to its owner: planted-owner-1" in output


def test_the_owner_sees_a_new_key():
    """The line that shows a generated key is not redacted."""
    code = """
import sys
from nat.secrets import new_key
from nat.secrets import redact_output, unredacted
redact_output()
key = new_key()
print(key)
print(len(key), key, file=unredacted(sys.stdout))
"""
    first, second = run(code).splitlines()
    assert first == "**********"
    assert second.startswith("50 sk-nat-")


def test_files_are_private(tmp_path: Path):
    """Files of this process and its children can be read by the user only; a stricter umask stays."""
    code = """
import os, subprocess, sys
from nat.secrets import keep_files_private
os.umask(0o300)
keep_files_private()
open("file", "w").close()
os.mkdir("folder")
subprocess.run(["/bin/sh", "-c", "echo > child"])
"""
    assert run(code, cwd=tmp_path) == ""
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert modes == {"file": "0o400", "folder": "0o400", "child": "0o400"}


def test_our_own_messages_are_no_secrets():
    """No text of this package is changed by the redaction that it passes, such as the hint how to send a key."""
    found = []
    for path in (Path(__file__).parents[2] / "src" / "nat").rglob("*.py"):
        texts = [node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)]
        found += [text for text in texts if isinstance(text, str) and KnownSecrets().redact(text) != text]
    assert found == []
