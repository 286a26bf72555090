"""Where a server listens, so that two URLs can be compared. Pure."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from nat.wire.hosts import is_everywhere, is_loopback

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; all names of this machine's own loopback are one host."""

    host: str
    port: int


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
