"""The secrets that this process knows, and texts without them.

The harness and the backend each have one registry. The configuration fills the harness's (`nat.config.secrets` says
what counts as a secret); the backend gets a copy when it is started. What is written or printed passes `redact`;
what a run works with in memory stays as it is.
"""

import base64
import json
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

REDACTED = "**********"

_OWN_KEY = re.compile(r"sk-nat-[\w-]{43}")
_URL_LOGIN = re.compile(r"(?<=://)[^/@:\s\"']{1,256}:[^/@\s\"']{1,256}(?=@)")
_LINE_LENGTH = 16
"""A line of a key file is recognised on its own from this length on."""
_PLACEHOLDERS = {
    "",
    "not-needed",
    "not_needed",
    "not-used",
    "anything",
    "password",
    "changeme",
    "undefined",
}
"""What people write where a key is asked for and none is needed."""


class KnownSecrets:
    """Values that are replaced by stars wherever they turn up, also as JSON, Python or URLs write them."""

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()

    def remember(self, values: Iterable[str]) -> None:
        """Add secrets, as they are; what is not recognisable is left out."""
        self._values |= {value for value in values if recognisable(value)}
        forms = {form for value in self._values for form in _forms(value)}
        self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))

    def forget(self) -> None:
        """Start again with none."""
        self._values, self._forms = frozenset(), ()

    def values(self) -> list[str]:
        """All that was remembered."""
        return sorted(self._values)

    def redact(self, text: str) -> str:
        """The text with stars in place of known secrets, of keys that we made up, and of logins in URLs.

        A text without secrets costs one search for each of them, at the speed of memory.
        """
        for form in self._forms:
            if form in text:
                text = text.replace(form, REDACTED)
        if "sk-nat-" in text:
            text = _OWN_KEY.sub(REDACTED, text)
        return _URL_LOGIN.sub(REDACTED, text) if "://" in text and "@" in text else text

    def redact_json(self, text: str, *, indent: int | None = None) -> str:
        """One JSON value without secrets in its strings; numbers and structure stay as they are."""
        if self.redact(text) == text:
            return text
        return json.dumps(self.redact_tree(json.loads(text)), ensure_ascii=False, indent=indent)

    def redact_tree(self, value: Any) -> Any:
        """Plain data with each string redacted."""
        if isinstance(value, dict):
            return {self.redact_tree(key): self.redact_tree(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.redact_tree(item) for item in value]
        return self.redact(value) if isinstance(value, str) else value


known_secrets = KnownSecrets()
"""Those of this process."""


def recognisable(value: str) -> bool:
    """True for what does not turn up by chance: 8 characters, or 6 with letters and digits, and no placeholder."""
    long_enough = len(value) >= 8 or (len(value) >= 6 and is_mixed(value))  # noqa: PLR2004 - the docstring says what for
    return long_enough and value.strip("*").lower() not in _PLACEHOLDERS


def is_mixed(value: str) -> bool:
    """True with letters and digits in it."""
    return any(map(str.isalpha, value)) and any(map(str.isdigit, value))


def redact(text: str) -> str:
    """The text without what this process knows to be secret."""
    return known_secrets.redact(text)


def redact_json(text: str, *, indent: int | None = None) -> str:
    """Likewise for one JSON value."""
    return known_secrets.redact_json(text, indent=indent)


def excerpt(text: str, length: int) -> str:
    """The beginning of a text for a message; redacted first, since half a secret is not recognised."""
    return redact(text)[:length]


def new_key() -> str:
    """A key of our own making; its form is recognised, so that nobody has to remember it."""
    return f"sk-nat-{secrets.token_urlsafe(32)}"


def _forms(value: str) -> Iterator[str]:
    """A secret as it may be written: plain, in JSON, in Python, in a URL, in base64, and line by line."""
    yield from (value, value.strip(), json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield from (repr(value)[1:-1], quote(value), quote(value, safe=""), quote_plus(value))
    if ":" in value:  # a login, which clients send so
        yield base64.b64encode(value.encode(errors="replace")).decode()
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line for line in map(str.strip, lines) if len(line) >= _LINE_LENGTH and "-----" not in line)
