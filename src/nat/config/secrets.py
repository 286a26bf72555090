"""Decide what is a secret in a configuration and in the environment: its name does. Pure; nothing else decides this.

A secret is a text under a secret's name (`api_key`, the variable HF_TOKEN, all below `default_headers`), a login in
a URL, and what follows `Bearer`, `--api-key` or `API_KEY=` in a text. It is replaced by stars in its place, and
everywhere else if it is too long to occur by chance (`nat.secrets.recognisable`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pydantic import SecretStr

from nat.secrets import REDACTED

_SECRET_WORDS = re.compile(
    r"(api|access|secret|private|auth|account|signing|encryption|subscription|master|shared|license|ssh|server|service"
    r"|admin|function|deploy|storage|sas)_?key|^x_(\w+_)?key$"
    r"|secret|password|passwd|passphrase|passcode|credential|authorization|bearer|cookie|webhook|(^|_)headers$"
    r"|(^|_)conn(ection)?_?str(ing)?$|(^|_)sas_?ur[il]$|(^|_)(pwd|pw|jwt|pat|sas|sig|dsn|auth)$"
    r"|(^|_)(db|user|admin|root|login|proxy|smtp|mail|ftp|ldap|mysql|pg|redis|mongo)_?pass$"
    r"|token(?!s$|s_|iz|_(ids?|level|count|limit|usage|budget|ratio)|_?type)"
    r"|(api|access|auth|refresh|bearer|secret)_tokens"
)
_BARE = ("key", "auth", "pass")
"""Names of secrets that are names of other things, too: not of a section, nor of an argument (`sort(key=…)`)."""
_ENVIRONMENT_KEY = re.compile(r"([A-Z0-9]+_)*(KEY|PASS)")
_WORKING_FOLDERS = ("PWD", "OLDPWD")
"""Set by every shell: the current and the previous working folder; PWD is no password here."""

_LOGIN = re.compile(r"://(?P<secret>[^/@\s:]+:(?P<password>[^/@\s]+))@")
_SCHEME = re.compile(r"\bBearer\s+(?P<secret>[\w.~+/=-]{8,})")
_ASSIGNED = re.compile(r"(?<![\w-])(?P<name>[A-Za-z][\w-]*)=[\"']?(?P<secret>[^\s\"';&]+)")
_OPTION = re.compile(r"(?<!\S)--?(?P<name>[A-Za-z][\w-]*)\s+[\"']?(?P<secret>[^\s\"'-][^\s\"']*)")


def is_secret_key(key: object) -> bool:
    """True for api_key, x-api-key, hf_token, clientSecret, OPENWEATHER_KEY, default_headers and similar names."""
    return str(key) in _BARE or _is_section(key)


def names_secret(path: Sequence[object]) -> bool:
    """True if the last key of a path is a secret's name, or one above it is."""
    return bool(path) and (is_secret_key(path[-1]) or any(map(_is_section, path[:-1])))


def _is_section(key: object) -> bool:
    """True if everything below the key is secret."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(key)).replace("-", "_").lower()
    named = _ENVIRONMENT_KEY.fullmatch(str(key)) or _SECRET_WORDS.search(snake)
    return named is not None


def secrets_in(value: Any) -> set[str]:
    """Every secret of a tree."""
    found: set[str] = set()
    redacted(value, found)
    return found


def redacted(value: Any, found: set[str] | None = None, *, secret: bool = False) -> Any:
    """A copy of the tree with stars for each text under a secret's name; `found` collects all secrets of the tree."""
    found = set() if found is None else found
    if isinstance(value, Mapping):
        hides = {key: (_is_section if isinstance(item, Mapping) else is_secret_key)(key) for key, item in value.items()}
        return {key: redacted(item, found, secret=secret or hides[key]) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        found.update(_marked(" ".join(each for each in value if isinstance(each, str))))  # a command's arguments
        return [redacted(item, found, secret=secret) for item in value]
    if isinstance(value, SecretStr):
        found.add(value.get_secret_value())
    elif secret and isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
        found.update((str(value), *str(value).split()[-1:]))
        return REDACTED
    elif isinstance(value, str):
        found.update(_marked(value))
    return value


def environment_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """The values of variables with a secret's name, and secrets in the others, whether or not they are used."""
    for name, value in environ.items():
        if is_secret_key(name) and name not in _WORKING_FOLDERS:
            yield value
        yield from _marked(value)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for our own processes that do not need the user's secrets."""
    return {name: value for name, value in environ.items() if not is_secret_key(name)}


def _marked(text: str) -> Iterator[str]:
    """The secrets that the text itself marks: logins of URLs, Bearer, `api_key=…`, `--api-key …`."""
    for login in _LOGIN.finditer(text):
        yield from (login["secret"], login["password"], unquote(login["password"]))
    yield from (match["secret"] for match in _SCHEME.finditer(text))
    for pattern in (_OPTION, _ASSIGNED):
        yield from (match["secret"] for match in pattern.finditer(text) if _is_section(match["name"]))
