"""Keep the secrets that this process knows out of its files, output, logs and memory.

The harness and the backend each have one registry. The configuration fills the harness's (`nat.config.secrets` says
what counts as a secret); the backend gets a copy when it is started. Everything that is written or printed passes
`redact`; values in memory stay as they are.
"""

import base64
import errno
import json
import logging
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus

REDACTED = "**********"

_OWN_KEY = re.compile(r"sk-nat-[\w-]{43}")
_URL_LOGIN = re.compile(r"(?<=://)[^/@:\s\"']{1,256}:(?!KEY@)[^/@\s\"']{1,256}(?=@)")
"""Not of our own messages, which write `http://any:KEY@host`."""
_PLACEHOLDERS = {"", "not-needed", "not_needed", "not-used", "anything", "password", "changeme", "undefined"}
"""Values that people set where a key is required but not checked."""


class KnownSecrets:
    """Values that are replaced by stars wherever they occur, also as JSON, Python or URLs write them."""

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()

    def remember(self, values: Iterable[str]) -> None:
        """Add secrets; values that are not recognisable are left out."""
        self._values |= {value for value in values if recognisable(value)}
        forms = {form for value in self._values for form in _forms(value)}
        self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))

    def forget(self) -> None:
        """Remove all secrets."""
        self._values, self._forms = frozenset(), ()

    def values(self) -> list[str]:
        """All secrets, sorted."""
        return sorted(self._values)

    def redact(self, text: str) -> str:
        """The text with stars in place of known secrets, of keys that we generated, and of logins in URLs.

        A text without secrets costs one search for each of them, at the speed of memory.
        """
        for form in self._forms:
            if form in text:
                text = text.replace(form, REDACTED)
        if "sk-nat-" in text:
            text = _OWN_KEY.sub(REDACTED, text)
        return _URL_LOGIN.sub(REDACTED, text) if "://" in text and "@" in text else text

    def redact_tree(self, value: Any) -> Any:
        """Plain data with each string redacted."""
        if isinstance(value, dict):
            return {self.redact_tree(key): self.redact_tree(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.redact_tree(item) for item in value]
        return self.redact(value) if isinstance(value, str) else value


known_secrets = KnownSecrets()
"""The registry of this process."""


def recognisable(value: str) -> bool:
    """True if the value cannot occur by chance: 8 characters, or 6 with letters and digits, and no placeholder."""
    is_mixed = any(map(str.isalpha, value)) and any(map(str.isdigit, value))
    long_enough = len(value) >= (6 if is_mixed else 8)
    return long_enough and value.strip("*").lower() not in _PLACEHOLDERS


def redact(text: str) -> str:
    """Replace the secrets that this process knows."""
    return known_secrets.redact(text)


def redact_json(text: str, *, indent: int | None = None) -> str:
    """One JSON value without secrets in its strings; numbers and structure stay as they are."""
    if redact(text) == text:
        return text
    return json.dumps(known_secrets.redact_tree(json.loads(text)), ensure_ascii=False, indent=indent)


def excerpt(text: str, length: int) -> str:
    """The beginning of a text, for a message; redacted before it is cut, since half a secret is not recognised."""
    return redact(text)[:length]


def new_key() -> str:
    """Generate a key; `redact` recognises its form, so it need not be remembered."""
    return f"sk-nat-{secrets.token_urlsafe(32)}"


def _forms(value: str) -> Iterator[str]:
    """A secret as it may be written: plain, in JSON, in Python, in a URL and in base64."""
    yield from (value, value.strip(), json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield from (repr(value)[1:-1], quote(value), quote(value, safe=""), quote_plus(value))
    if ":" in value:  # a login, which clients send so
        yield base64.b64encode(value.encode(errors="replace")).decode()


@contextmanager
def redacted_logs() -> Iterator[None]:
    """Redact the message and traceback of each log record, for handlers of other programs too, until the block ends."""
    make = logging.getLogRecordFactory()

    def redacted(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make(*arguments, **named)
        if (text := redact(said := record.getMessage())) != said:
            record.msg, record.args = text, None
        if record.exc_info:
            record.exc_text = redact(logging.Formatter().formatException(record.exc_info))
        return record

    logging.setLogRecordFactory(redacted)
    try:
        yield
    finally:
        logging.setLogRecordFactory(make)


def keep_files_private() -> None:
    """Let only the user read what this process and its children write: folders 0700, files 0600."""
    os.umask(os.umask(0o077) | 0o077)


def redact_output() -> None:
    """Redact stdout and stderr: logs, tracebacks and prints of libraries included."""
    sys.stdout = cast("TextIO", RedactedText(sys.stdout))
    sys.stderr = cast("TextIO", RedactedText(sys.stderr))


def unredacted(stream: "TextIO | RedactedText") -> TextIO:
    """The stream itself, for the one line that shows a new key to the user."""
    return stream.plain if isinstance(stream, RedactedText) else stream


class RedactedText:
    """A text stream that redacts all writes; once its reader or terminal is gone, as after `| head`, it drops them."""

    def __init__(self, plain: TextIO) -> None:
        self.plain = plain

    def write(self, text: str) -> int:
        with self._dropped_without_reader():
            self.plain.write(redact(text))
        return len(text)

    def flush(self) -> None:
        with self._dropped_without_reader():
            self.plain.flush()

    @contextmanager
    def _dropped_without_reader(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.plain.fileno())

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)
