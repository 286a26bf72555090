import base64
import json
import logging
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.wire import known_secrets as module
from nat.wire.known_secrets import REDACTED, KnownSecrets, excerpt, known_secrets, new_key, redact
from nat.wire.redacted_logs import redacted_logs

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
def test_a_secret_is_found_however_it_is_written(written):
    """Plain, as Python or JSON quote it, and as a part of a URL."""
    text = f"before {written(AWKWARD)} after"
    assert REDACTED in knowing(AWKWARD).redact(text)
    assert "ass" not in knowing(AWKWARD).redact(text)


def test_a_login_is_found_in_a_basic_header():
    """Clients send the user and the password of a URL in base64."""
    header = "Basic " + base64.b64encode(b"me:pass-word-1").decode()
    assert knowing("me:pass-word-1").redact(header) == f"Basic {REDACTED}"


def test_lines_of_a_key_file_are_found_on_their_own():
    """A log that prints a key line by line shows none of its lines."""
    key = "-----BEGIN KEY-----\nabcdefghijklmnopqrstuvwxyz\n-----END KEY-----"
    assert knowing(key).redact("  abcdefghijklmnopqrstuvwxyz  ") == f"  {REDACTED}  "


def test_the_longest_secret_goes_first():
    """One secret inside another leaves no rest of the longer one."""
    assert knowing("secret-1", "secret-1-longer").redact("secret-1-longer") == REDACTED


@pytest.mark.parametrize("value", ["", "default", "EMPTY", "test", "k", "not-needed", "password", REDACTED])
def test_what_turns_up_by_chance_is_not_looked_for(value):
    """A word that stands for no key would star half of every text."""
    text = f"the word {value} in a text"
    assert knowing(value).redact(text) == text


def test_a_short_password_with_digits_is_looked_for():
    """Six characters with letters and digits are enough."""
    assert knowing("hunter2").redact("my hunter2!") == f"my {REDACTED}!"


def test_numbers_in_json_stay():
    """A secret of digits is starred in texts, and no token id, seed or log probability is touched."""
    row = {"token_ids": [12345678, 1], "logprob": -0.12345678, "text": "12345678", "12345678": True}
    redacted = json.loads(knowing("12345678").redact_json(json.dumps(row)))
    assert redacted == {"token_ids": [12345678, 1], "logprob": -0.12345678, "text": REDACTED, REDACTED: True}


@given(JSON)
def test_json_without_secrets_is_the_same_text(value):
    """Nothing is parsed or written anew where nothing is found."""
    text = json.dumps(value)
    assert knowing("a-secret-that-is-not-there").redact_json(text) is text


def test_logins_in_urls_and_our_own_keys_need_not_be_known():
    """They are recognised by their form."""
    key = new_key()
    assert KnownSecrets().redact(f"http://me:pw@host/x {key}!") == f"http://{REDACTED}@host/x {REDACTED}!"
    assert KnownSecrets().redact("git+ssh://git@host and a@b") == "git+ssh://git@host and a@b"


def test_an_excerpt_shows_no_half_of_a_secret():
    """A text is redacted before it is cut."""
    known_secrets.remember(["a-long-secret-1"])
    assert excerpt("12345 a-long-secret-1", 12) == f"12345 {REDACTED}"[:12]


def test_no_message_is_cut_by_its_format():
    """`{value!r:.80}` leaves half a secret, which nothing recognises; `excerpt` redacts first."""
    sources = sorted(Path(module.__file__).parents[1].rglob("*.py"))
    assert sources
    assert [str(path) for path in sources if re.search(r"!r:\.\d", path.read_text("utf-8"))] == []


def test_logs_of_others_are_redacted_with_their_tracebacks():
    """A handler of the program that calls us writes no secret while a run goes on; afterwards it is as before."""
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
        assert handler.filters == []
    finally:
        logger.removeHandler(handler)
    [text] = written
    assert "a-long-secret-1" not in text
    assert f"it is {REDACTED}" in text
    assert f"invalid literal for int() with base 10: '{REDACTED}'" in text
    assert redact("a-long-secret-1") == REDACTED
