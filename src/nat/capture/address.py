"""Where a server listens, so that two URLs can be compared. Pure."""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_THIS_MACHINE = "localhost"


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
    return Address(_THIS_MACHINE if is_this_machine(host) else host.lower(), port)


def is_this_machine(host: str) -> bool:
    """True for what `is_loopback` names, and for 0.0.0.0, which as a target means the same."""
    if is_loopback(host):
        return True
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == _THIS_MACHINE
