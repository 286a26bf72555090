"""Decide what is a secret in a configuration and in the environment. Pure; no other module decides this.

1. Any value whose key is a secret's name (`is_secret_key`): in the YAML, in an override, in the environment, below
   `default_headers`, as `--api-key VALUE` or `API_KEY=VALUE` in a command.
2. User and password in a URL, also of a variable that nothing uses, and the text after `Bearer` or `Basic`.
3. Any value from an environment variable, except: its variable or key names a model, a file or a place
   (`is_plain_name`); it is a path, a URL without a login, or a number; it is as short as a word.

A secret is replaced by stars in its place, and everywhere else if it is too long to occur by chance
(`nat.secrets.recognisable`). A value that is secret only by point 3, or by the word before it, must have 16
characters, or 8 with letters and digits.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pydantic import SecretStr

from nat.secrets import REDACTED, is_mixed

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
_PLAIN_WORDS = re.compile(
    r"(^|_)(_type|models?|name|names|id|path|file|folder|dir|directory|home|root|pwd|cwd|host|hostname|port|address"
    r"|region|version|level|lang|user|device|dtype|dataset|run|experiment)$"
)

_URL_USER = re.compile(r"://(?P<secret>[^/@\s]+)@")
_SCHEME = re.compile(r"\b(?:Bearer|Basic)\s+(?P<secret>[\w.~+/=-]{6,})")
_ASSIGNED = re.compile(r"(?<![\w-])(?P<name>[A-Za-z][\w-]*)=(?P<quote>[\"']?)(?P<secret>[^\s\"';&]+)(?P=quote)")
_OPTION = re.compile(
    r"(?<!\S)--?(?P<name>[A-Za-z][\w-]*)[=\s]\s*(?P<quote>[\"']?)(?P<secret>[^\s\"'-][^\s\"']*)(?P=quote)"
)
_OPTION_NAME = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)")


def is_secret_key(key: object) -> bool:
    """True for api_key, x-api-key, hf_token, clientSecret, OPENWEATHER_KEY, default_headers and similar names."""
    text, name = str(key), _snake(str(key))
    return name in _BARE or _SECRET_WORDS.search(name) is not None or _ENVIRONMENT_KEY.fullmatch(text) is not None


def names_secret(path: Sequence[object]) -> bool:
    """True if the last key of a path is a secret's name, or one above it is."""
    return bool(path) and (is_secret_key(path[-1]) or any(_is_section(key) for key in path[:-1]))


def _is_section(key: object) -> bool:
    """True if everything below the key is secret."""
    return is_secret_key(key) and str(key) not in _BARE


def is_plain_name(key: object) -> bool:
    """True for names of models, files and places, whose values are shown."""
    return _PLAIN_WORDS.search(_snake(str(key))) is not None


def secrets_in(value: Any) -> set[str]:
    """Every secret of a tree."""
    found: set[str] = set()
    redacted(value, found)
    return found


def redacted(value: Any, found: set[str] | None = None, *, secret: bool = False) -> Any:
    """A copy of the tree with stars instead of each secret; `found` collects the secrets."""
    found = set() if found is None else found
    if isinstance(value, Mapping):
        return {key: redacted(item, found, secret=secret or _hides(key, item)) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [redacted(item, found, secret=secret or follows) for item, follows in _with_option(value)]
    if isinstance(value, SecretStr):
        found.add(value.get_secret_value())
    elif secret and isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
        found.update((str(value), *str(value).split()[-1:]))
        return REDACTED
    return _starred(value, found) if isinstance(value, str) else value


def environment_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """The values of variables with a secret's name, and logins in URLs, whether or not the configuration uses them."""
    for name, value in environ.items():
        if is_secret_key(name) and name not in _WORKING_FOLDERS:
            yield value
        for match in _URL_USER.finditer(value):
            login = match["secret"]
            if password := login.partition(":")[2]:  # a user's name alone occurs in paths
                yield from (login, password, unquote(password))


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for our own processes that do not need the user's secrets."""
    return {name: value for name, value in environ.items() if not is_secret_key(name)}


def filled_secrets(name: str, value: str, path: Sequence[object]) -> Iterator[str]:
    """The value of the variable `name`, used at `path`, if it is a secret."""
    plain = is_plain_name(name) or (path and is_plain_name(path[-1])) or _plain(value)
    if is_secret_key(name) or names_secret(path) or (not plain and _stands_out(value)):
        yield value


def _hides(key: object, value: object) -> bool:
    return _is_section(key) if isinstance(value, Mapping) else is_secret_key(key)


def _snake(name: str) -> str:
    """`x-api-key`, `X-Api-Key` and `xApiKey` are x_api_key."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


def _with_option(items: Any) -> Iterator[tuple[Any, bool]]:
    """Each item of a list, and whether it follows an option such as `--api-key`."""
    before: Any = None
    for item in items:
        option = _OPTION_NAME.fullmatch(before) if isinstance(before, str) else None
        yield item, option is not None and is_secret_key(option["name"])
        before = item


def _marks(match: re.Match[str]) -> bool:
    """True if what a pattern has found is a secret by the words before it."""
    if match.re is _SCHEME:
        return _stands_out(match["secret"])  # unlike Basic arithmetic
    return match.re is _URL_USER or (_is_section if match.re is _ASSIGNED else is_secret_key)(match["name"])


def _starred(text: str, found: set[str]) -> str:
    """The text with stars instead of what it marks itself: logins in URLs, Bearer, `api_key=…`, `--api-key …`."""

    def star(match: re.Match[str]) -> str:
        if not _marks(match):
            return match[0]
        secret: str = match["secret"]
        user, _, password = secret.partition(":") if match.re is _URL_USER else ("", "", secret)
        found.update((secret, unquote(secret), password or user, unquote(password or user)))
        return match[0].replace(secret, REDACTED)

    for pattern in (_URL_USER, _SCHEME, _OPTION, _ASSIGNED):
        text = pattern.sub(star, text)
    return text


def _stands_out(value: str) -> bool:
    """True if the value is too long or too mixed to be a word."""
    return len(value) >= 16 or (len(value) >= 8 and is_mixed(value))


def _plain(value: str) -> bool:
    """True for numbers, paths, and URLs without a login."""
    text = value.strip()
    return (
        re.fullmatch(r"[-+.\d_]+([eE][-+]?\d+)?", text) is not None
        or re.fullmatch(r"[A-Za-z][\w+.-]*://[^\s@]*", text) is not None
        or re.match(r"~?/[\w.-]+/|\.{1,2}/|~/|[A-Za-z]:\\", text) is not None
    )
