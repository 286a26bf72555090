"""Send requests for one model to another one on the same server.

A server may serve the trained weights and the weights they started from under two names. In training, the agent's
requests must reach the trained ones, whatever name the YAML has.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import urlsplit

from nat.wire.hosts import is_everywhere, is_loopback

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
        self._names: dict[tuple[Address, str], str] = {}

    def send(self, server: Address, requested: str, to: str) -> None:
        self._names[server, requested] = to

    def name(self, server: Address, requested: str) -> str:
        return self._names.get((server, requested), requested)

    def entries(self) -> Iterator[tuple[Address, str, str]]:
        """Server, requested name and name to send; entries with two equal names are left out."""
        return ((server, requested, to) for (server, requested), to in self._names.items() if requested != to)


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


def current_redirects() -> Redirects | None:
    """The redirects that apply here; None outside of `redirecting`."""
    return _current.get()


def served_name(server: Address | None, requested: str) -> str:
    """The model name to send when an agent requests `requested`."""
    redirects = _current.get()
    return requested if redirects is None or server is None else redirects.name(server, requested)
