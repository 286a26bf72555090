"""Send requests for one model to another one on the same server.

A server may serve the trained weights and the weights they started from under two names. In training, the agent's
requests must reach the trained ones, whatever name the YAML has.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import urlsplit

from nat.wire.hosts import is_everywhere, is_loopback
from nat.wire.rollout import ModelRedirect

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; all names of the loopback interface are one host."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def address_of(url: str) -> Address | None:
    """The address that a URL leads to; None if it names none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # brackets that do not close, or a port that is no number
        return None
    if not host or port is None:
        return None
    here = is_loopback(host) or is_everywhere(host)  # as a target, 0.0.0.0 means this machine
    return Address("localhost" if here else host.lower(), port)


class Redirects:
    """Model names to replace, by server and requested name; a change applies from the next request on."""

    def __init__(self) -> None:
        self._found: dict[tuple[Address, str], ModelRedirect] = {}

    def send(self, server: Address, requested: str, to: str, *, frozen_llms: Collection[str] = ()) -> None:
        names = {"requested_model": requested, "served_model": to, "frozen_llms": sorted(frozen_llms)}
        self.add(ModelRedirect(host=server.host, port=server.port, **names))

    def add(self, redirect: ModelRedirect) -> None:
        self._found[Address(redirect.host, redirect.port), redirect.requested_model] = redirect

    def name(self, server: Address, requested: str, llm: str | None = None) -> str:
        """The name to send; `llm` is the requesting one's key, None for a client that the harness did not build."""
        found = self._found.get((server, requested))
        return requested if found is None or llm in found.frozen_llms else found.served_model

    def entries(self) -> list[ModelRedirect]:
        """Those that change a name."""
        return [each for each in self._found.values() if each.requested_model != each.served_model]


_current: ContextVar[Redirects | None] = ContextVar("nat_redirects", default=None)


@contextmanager
def redirecting() -> Iterator[Redirects]:
    """Redirect all requests of this task, and of the tasks that it starts, until the block ends."""
    outer, redirects = _current.get(), Redirects()
    _current.set(redirects)
    try:
        yield redirects
    finally:
        _current.set(outer)  # no token: the block may end in another context than it began in


current_redirects = _current.get
"""The redirects that apply here; None outside of `redirecting`."""


def served_name(server: Address | None, requested: str, llm: str | None = None) -> str:
    """The model name to send when an agent requests `requested` by the LLM of that key."""
    redirects = _current.get()
    return requested if redirects is None or server is None else redirects.name(server, requested, llm)
