"""Under which name a request asks for its model, where that is not the name that the agent said.

A server that keeps the trained weights and those they began with apart knows them by two names. While one is trained,
the agent's requests must get the trained ones, whatever the YAML calls them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nat.capture.address import Address


class Redirects:
    """For a server and a name that is asked for, the name to ask for instead; a change holds from the next request."""

    def __init__(self) -> None:
        self._names: dict[tuple[Address, str], str] = {}

    def send(self, server: Address, asked: str, to: str) -> None:
        self._names[server, asked] = to

    def name(self, server: Address, asked: str) -> str:
        return self._names.get((server, asked), asked)

    def entries(self) -> Iterator[tuple[Address, str, str]]:
        """Server, name that is asked for, name to ask for; without those that change nothing."""
        return ((server, asked, to) for (server, asked), to in self._names.items() if asked != to)


_current: ContextVar[Redirects | None] = ContextVar("nat_redirects", default=None)


@contextmanager
def redirecting() -> Iterator[Redirects]:
    """Redirects for all requests that are made from here on, by this task and by those that it starts."""
    outer, redirects = _current.get(), Redirects()
    _current.set(redirects)
    try:
        yield redirects
    finally:
        _current.set(outer)  # no token: the block may end in another context than it began in


def current_redirects() -> Redirects | None:
    """Those that hold for requests made here; None outside of `redirecting`."""
    return _current.get()


def served_name(server: Address | None, asked: str) -> str:
    """The name to send to a server when an agent asks it for `asked`."""
    redirects = _current.get()
    return asked if redirects is None or server is None else redirects.name(server, asked)
