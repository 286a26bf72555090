"""Render chat templates as transformers does: the same sandbox, filters and globals, without importing it.

A test compares both. The sandbox of Jinja keeps a template from Python's internals; time and memory are limited by the
process that this runs in.
"""

import json
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace


def render(template: str, variables: dict[str, Any], now: str | None = None) -> str:
    """The text that a template writes for these variables at a local time, in ISO format; by default now."""
    time = datetime.now() if now is None else datetime.fromisoformat(now)  # noqa: DTZ005 - templates write local dates
    return _compiled(template).render({**variables, "strftime_now": time.strftime})


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_raise, dict=_Dict(), namespace=_PublicNamespace)
    return environment.from_string(template)


class _Generation(Extension):
    """`{% generation %}` marks what the assistant wrote; it changes no text."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's name

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return [nodes.Scope(body)]


class _Dict:
    """`dict` for templates, without the attributes of the type."""

    def __call__(self, *pairs: Any, **entries: Any) -> dict[Any, Any]:
        return dict(*pairs, **entries)

    def fromkeys(self, *arguments: Any) -> dict[Any, Any]:
        return dict.fromkeys(*arguments)


class _PublicNamespace(Namespace):
    """`namespace` for templates; a name with an underscore could reach Python's internals."""

    def __init__(*arguments: Any, **entries: Any) -> None:
        self, *pairs = arguments
        attributes = dict(*pairs, **entries)
        for name in attributes:
            _check_public(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


def _check_public(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a chat template must not set {name!r} on a namespace; names must not begin with `_`")


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
